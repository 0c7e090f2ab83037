"""The bounds that the shadow's report gives, held against SciPy's, on counts of every size."""

import json
import subprocess

import pytest
from conftest import BINARY, SAMPLE, lookalike, serve, stop
from scipy.stats import beta, binomtest

KINDS = ["error", "timeout", "decision", "identity", "order", "score", "borderline", "agree", "dropped"]
COUNTS = [
    [0, 0, 0, 0, 0, 0, 0, 1, 0],
    [1, 0, 1, 0, 2, 3, 5, 30, 7],
    [12, 3, 0, 1, 4, 40, 500, 99_440, 0],
    [0, 0, 0, 0, 0, 0, 0, 100_000, 0],
    [3, 77, 15, 2, 1_000, 0, 123_456, 9_876_543, 54_321],
    [1_000_000, 0, 7, 0, 0, 500_000_000, 1, 499_999_992, 3],
]
FLAGS = ["--backend", "cpu", "--set", "shadow.enabled=true", "--set", "shadow.backend=reference", "--set", "shadow.sampling=1"]


def report(server):
    done = subprocess.run([BINARY, "shadow", "report", "--server", server.address, "--format", "json"],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode in (0, 3), done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A data folder and the state that a server left beside it."""
    folder = tmp_path_factory.mktemp("bounds")
    lookalike("gallery", "import", "--data", folder / "data", "--labels", SAMPLE / "gallery.csv", SAMPLE / "gallery.npy")
    stop(serve(folder / "data", *FLAGS, "--set", f"shadow.record.path={folder / 'record'}"))
    return folder


@pytest.mark.parametrize("counts", COUNTS)
def test_every_rate_has_scipys_bounds(folder, counts):
    path = folder / "record/state.json"
    state = json.loads(path.read_text())
    state["evidence"]["counts"] = counts
    path.write_text(json.dumps(state))
    server = serve(folder / "data", *FLAGS, "--set", f"shadow.record.path={folder / 'record'}")
    told = report(server)
    stop(server)
    compared, failed = sum(counts[2:8]), sum(counts[:2])
    assert int(told["compared"]) == compared
    wholes = dict.fromkeys(KINDS, compared) | dict.fromkeys(KINDS[:2], compared + failed) | {"dropped": sum(counts)}
    for kind, count, whole in zip(told["kinds"], counts, (wholes[name] for name in KINDS)):
        assert int(kind["count"]) == count
        low = beta.ppf(0.025, count, whole - count + 1) if count > 0 else 0.0
        high = beta.ppf(0.975, count + 1, whole - count) if count < whole else 1.0
        assert kind["rateLow"] == pytest.approx(low, rel=1e-7), (kind, whole)
        assert kind["rateHigh"] == pytest.approx(high, rel=1e-7), (kind, whole)
        # SciPy's own name for it, which finds the roots to 2e-12.
        named = binomtest(count, whole).proportion_ci(0.95, method="exact")
        assert (kind["rateLow"], kind["rateHigh"]) == pytest.approx((named.low, named.high), abs=1e-11)
    hard = counts[2] + counts[3]
    [gate] = [check for check in told["gate"] if check["condition"] == "hard_rate"]
    # One-sided: with 95 % confidence it is no higher.
    assert gate["value"] == pytest.approx(beta.ppf(0.95, hard + 1, compared - hard), rel=1e-7)
