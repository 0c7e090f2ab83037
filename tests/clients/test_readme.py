"""What the README tells people to run is run: against the sample's server, in the README's own words."""

import os
import re
import subprocess
import sys

import pytest
from conftest import BINARY, GRPCURL, ROOT

README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
SHELL = [text for language, text in BLOCKS if language == "sh"]
GRPCURL_BLOCKS = [text for text in SHELL if "grpcurl -plaintext" in text]
[PYTHON] = [text for language, text in BLOCKS if language == "python"]
[PROTOC] = [text for text in SHELL if "grpc_tools.protoc" in text]
[OWN_GALLERY, QUALITY] = [text for text in SHELL if "gallery import" in text]
ADDRESS = "127.0.0.1:50051"


def run(script, cwd=ROOT):
    path = os.pathsep.join([str(GRPCURL.parent), str(BINARY.parent), os.path.dirname(sys.executable), os.environ["PATH"]])
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", script], cwd=cwd, capture_output=True, text=True,
                          env={**os.environ, "PATH": path}, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_readme_shows_what_is_tested_here():
    assert len(GRPCURL_BLOCKS) == 5
    assert len(PYTHON.splitlines()) <= 15
    assert len(OWN_GALLERY.splitlines()) == 5


@pytest.mark.parametrize("script", GRPCURL_BLOCKS, ids=lambda script: script.split()[-1])
def test_grpcurl_examples(script, server):
    assert ADDRESS in script
    printed = run(script.replace(ADDRESS, server.address))
    expected = {"list": "lookalike.v1.Recognition", "RecognizeRequest": "min_margin", "GetInfo": '"galleries"', "Reload": '"unchanged"',
                "Recognize": '"identity": "person_001"'}
    assert expected[re.split(r"[ ./]", script.strip())[-1]] in printed


def test_the_python_client(server, tmp_path):
    run(PROTOC.replace("_out=.", f"_out={tmp_path}"))
    client = tmp_path / "client.py"
    client.write_text(PYTHON.replace(ADDRESS, server.address))
    printed = run(f"PYTHONPATH={tmp_path} {sys.executable} {client}")
    lines = printed.splitlines()
    assert len(lines) == 12
    assert lines[0].split()[:3] == ["person_001-img_08", "DECISION_RECOGNIZED", "person_001"]
    assert any("DECISION_BELOW_THRESHOLD nobody (nearest" in line for line in lines)


def test_serving_ones_own_gallery(tmp_path):
    build, *steps, serve = OWN_GALLERY.strip().splitlines()
    assert build.startswith("cargo build --release") and serve == "lookalike serve --data faces"
    printed = run("\n".join(steps).replace("--data faces", f"--data {tmp_path}/faces"))
    assert "60 prototypes" in printed and "AMBIGUOUS" in printed


def test_recognition_quality(tmp_path):
    script = QUALITY.replace("--data faces", f"--data {tmp_path}/faces")
    script = script.replace("report.html", f"{tmp_path}/report.html").replace("--plots plots", f"--plots {tmp_path}/plots")
    printed = run(script)
    for told in ["greedy_leave_one_out_gain", "cluster_medoid", "person_002-img_08", "1920 of 1920", "photos: written, generation 2", "none: may be",
                 "nearest pairs of persons", "12 probes: 5 recognised"]:
        assert told in printed
    assert "<svg" in (tmp_path / "report.html").read_text()
    assert sorted(path.name for path in (tmp_path / "plots").iterdir()) == ["det.svg", "map.svg", "scores.svg"]
