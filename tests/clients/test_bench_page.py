"""The page of results says what was measured, and calls short what is short."""

import json
import sys
import xml.etree.ElementTree as ET

import pytest
from conftest import ROOT

sys.path.insert(0, str(ROOT / "tests/bench"))
import page  # noqa: E402

LIMITS = {"memory_ms": 2.0, "arithmetic_ms": 4.0, "times_limit": 2.25, "memory_gb_per_s": {"best": 20.0},
          "int8": {"gops": 900.0, "level": "avx2"}, "f32": {"gops": 200.0, "level": "avx2+fma"}}
CHECKED = {"equal": 9, "positions": 10}
RESULTS = {
    "machine": {"cpu": "A <fast> one", "cores": 2, "threads": 2, "path": "int8 avx2", "peers": {"faiss-cpu": "1"},
                "quick": False, "load": 0.1},
    "faiss_256": {"rows": 350000, "dim": 128, "probes": 256, "lookalike_ms": 100.0, "peer_ms": 850.0, "ratio": 8.5,
                  "exact_positions": 512, "of": 512},
    "faiss_16": {"rows": 350000, "dim": 128, "probes": 16, "lookalike_ms": 10.0, "peer_ms": 59.0, "ratio": 5.9,
                 "exact_positions": 511, "of": 512},
    "limits_256": {"rows": 350000, "dim": 128, "probes": 256, "median_ms": 9.0, "limits": LIMITS, "checked": CHECKED},
    "recognize_wide": {"rows": 200000, "dim": 512, "probes": 1, "median_ms": 5.0, "limits": LIMITS, "checked": CHECKED},
    "callers": {"rows": 350000, "dim": 128, "probes": 256, "callers": 64, "ratio": 8.0, "p99_by_p50": 4.5, "differing": 0,
                "one": {"per_s": 300.0, "p50_ms": 3.0, "p99_ms": 4.0},
                "many": {"per_s": 2400.0, "p50_ms": 25.0, "p99_ms": 112.5}},
    "hard_equal": {"rows": 350000, "probes": 16, "median_ms": 7.0, "uncertified": 3, "checked": CHECKED},
}


@pytest.fixture
def written(tmp_path):
    """The page and the plot that these results make."""
    lines = [json.dumps({"name": name, "at": "2030-01-02 03:04", "result": result}) for name, result in RESULTS.items()]
    (tmp_path / "results.jsonl").write_text("\n".join(lines))
    text = f"before\n{page.BEGIN}\nwhat was there\n{page.END}\nafter\n"
    (tmp_path / "README.md").write_text(text)
    for _ in range(2):  # Writing it again changes nothing.
        page.write(tmp_path / "results.jsonl", tmp_path / "README.md")
    return (tmp_path / "README.md").read_text(), (tmp_path / page.PLOT).read_text()


def row(text, start):
    [line] = [line for line in text.splitlines() if line.startswith(f"| {start} |")]
    return [cell.strip() for cell in line.strip("|").split("|")][1:]


def test_figures_are_held_to_their_bars(written):
    text, _ = written
    assert row(text, "256 probes, faiss") == ["100.00", "850.00", "8.50", ">= 8", "pass", "512 of 512"]
    assert row(text, "16 probes, faiss") == ["10.00", "59.00", "5.90", ">= 8", "**short**", "511 of 512"]
    assert row(text, "256 probes, against the larger limit") == ["9.00", "2.00", "4.00", "2.25", "<= 2.5", "pass", "9 of 10"]
    assert row(text, "Recognize, dim 512, 200 000 rows, against memory")[3:6] == ["2.50", "<= 2", "**short**"]
    assert row(text, "replies of 64 callers by those of one") == ["8.00", ">= 8", "pass"]
    assert row(text, "p99 by p50 of 64 callers") == ["4.50", "<= 4", "**short**"]
    assert row(text, "rows all equal: 350 000 rows, 16 probes") == ["7.00", "3", "9 of 10"]
    # Three of the six that were measured; 512 + 511 + 3 x 9 of 512 + 512 + 3 x 10.
    assert "3 of 17 bars hold (11 not measured). 1050 of 1054 positions" in text


def test_the_page_keeps_what_is_not_its_own(written):
    text, _ = written
    assert text.startswith("before\n") and text.endswith("\nafter\n") and "what was there" not in text
    assert text.count(page.BEGIN) == text.count(page.END) == 1
    assert "A <fast> one, 2 cores" in text and "20.0 GB/s" in text and "busy" not in text


def test_the_plot_shows_every_ratio_and_every_distance(written):
    root = ET.fromstring(written[1])
    kinds = [element.get("class") for element in root.iter() if element.tag.endswith("rect")]
    assert sorted(kinds) == ["pass", "pass", "short", "short"]
    widths = [float(element.get("width")) for element in root.iter() if element.tag.endswith("rect")]
    assert widths[0] > widths[1] > 0, "the larger ratio has the longer bar"


def test_a_busy_machine_and_a_quick_run_are_told():
    results = {"machine": {"name": "machine", "result": {**RESULTS["machine"], "quick": True, "load": 3.0}}}
    text = page.section(results)
    assert "busy" in text and "quick run" in text and "0 of 17 bars hold (17 not measured)" in text


def test_every_measurement_of_a_bar_is_made():
    source = (ROOT / "tests/bench/measure.py").read_text()
    for name in {bar.name for bar in page.BARS} | set(page.HARD):
        assert f'"{name}":' in source
