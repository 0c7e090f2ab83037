"""Runs every measurement of the page of results, one JSON line each, and has the page written. `run` calls it.

A measurement is a name and a function; what the page makes of its result, and which bar it is held to, stands in page.py.
"""

import argparse
import datetime
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import page

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


@dataclass(frozen=True)
class Plan:
    """How much is measured."""

    binary: str
    versus: str
    faces: Path
    rows: int
    wide_rows: int
    grown_rows: int
    many_probes: int
    rounds: int
    repeat: int
    callers: int


def told(command):
    """The last line, or the whole, of what a command prints, as JSON."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))}\nexit {done.returncode}\n{done.stderr[-2000:]}")
    text = done.stdout.strip()
    return json.loads(text if text.startswith("{\n") else text.splitlines()[-1])


def versus(peer, probes, real=None, **more):
    """Side by side with a peer."""

    def measure(plan):
        arguments = {"rows": plan.rows, "rounds": plan.rounds, "probes": probes(plan) if callable(probes) else probes}
        arguments |= {key: value(plan) if callable(value) else value for key, value in more.items()}
        if real:
            arguments["real"] = plan.faces / real
        flags = [part for key, value in arguments.items() for part in (f"--{key}", value)]
        return told([sys.executable, plan.versus, "--binary", plan.binary, "--peer", peer, *flags])

    return measure


def bench(plan, *flags):
    return told([plan.binary, "bench", "--backend", "cpu", "--format", "json", *flags])


def limits(probes):
    """Against what the machine can do at all."""
    return lambda plan: bench(plan, "--rows", plan.rows, "--probes-count", probes, "--repeat", plan.repeat,
                              "--limits", "--check", 16)


def recognize(plan):
    return bench(plan, "--rows", plan.wide_rows, "--dim", 512, "--probes-count", 1, "--repeat", plan.repeat,
                 "--ask", "recognize", "--limits", "--check", 1)


def growth(plan):
    """Ten times the rows, in alternating rounds."""
    times, checked = {plan.rows: [], plan.grown_rows: []}, []
    for _ in range(max(2, plan.rounds // 3)):
        for rows, all_ms in times.items():
            report = bench(plan, "--rows", rows, "--probes-count", 16, "--repeat", plan.repeat, "--check", 4)
            all_ms += report["total_ms"]
            checked.append(report["checked"])
    few, many = (float(np.median(all_ms)) for all_ms in times.values())
    return {"rows": plan.rows, "grown_rows": plan.grown_rows, "few_ms": few, "many_ms": many, "ratio": many / few,
            "checked": {key: sum(one[key] for one in checked) for key in checked[0]}}


def callers(plan):
    return bench(plan, "--rows", plan.rows, "--callers", plan.callers, "--repeat", plan.rounds, "--round-ms", 2000)


def unit(rows):
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def memory(plan):
    """What a server holds once it serves, as Linux counts it."""
    rows = unit(np.random.default_rng(1).standard_normal((plan.rows, 128), dtype=np.float32))
    with tempfile.TemporaryDirectory() as folder:
        vectors, labels, data = (Path(folder) / name for name in ("rows.npy", "labels.csv", "data"))
        np.save(vectors, rows)
        names = (f"person_{row // 5:06},img_{row % 5:02},photos/{row // 5:06}/img_{row % 5:02}.jpg\n" for row in range(plan.rows))
        labels.write_text("identity,prototype_id,source\n" + "".join(names))
        told([plan.binary, "gallery", "import", "--data", data, "--labels", labels, vectors, "--format", "json"])
        command = [plan.binary, "serve", "--data", data, "--backend", "cpu", "--listen", "127.0.0.1:0",
                   "--metrics-listen", "127.0.0.1:0", "--set", "log.format=json"]
        server = subprocess.Popen(list(map(str, command)), stderr=subprocess.PIPE, text=True)
        try:
            events = (json.loads(line) for line in server.stderr if line.startswith("{"))
            address = next(event["metrics"] for event in events if event.get("message") == "listening")
            until_ready(f"http://{address}/readyz")
            resident = resident_bytes(server.pid)
        finally:
            server.terminate()
            server.communicate()
    return {"rows": plan.rows, "dim": 128, "rows_bytes": rows.nbytes, "resident_bytes": resident,
            "beyond": resident / rows.nbytes - 1}


def until_ready(url):
    """Asks until a server says that it serves, for two minutes at most."""
    end = time.monotonic() + 120
    while time.monotonic() < end:
        try:
            with urllib.request.urlopen(url, timeout=10):
                return
        except urllib.error.URLError:
            time.sleep(0.05)
    raise RuntimeError(f"{url}: not ready within two minutes")


def resident_bytes(pid):
    status = Path(f"/proc/{pid}/status").read_text()
    return 1024 * next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:"))


def hard(make, *flags):
    """Rows that a screen can hardly tell apart: the answers must be right all the same."""

    def measure(plan):
        random = np.random.default_rng(2)
        rows = make(random, plan.rows)
        probes = unit(rows[:16] + 0.05 * random.standard_normal((16, rows.shape[1]), dtype=np.float32))
        with tempfile.TemporaryDirectory() as folder:
            gallery, asked = Path(folder) / "gallery.npy", Path(folder) / "probes.npy"
            np.save(gallery, rows), np.save(asked, probes)
            return bench(plan, "--gallery", gallery, "--probes", asked, "--repeat", 3, "--check", 16, *flags)

    return measure


def equal(random, rows):
    return np.repeat(unit(random.standard_normal((1, 128), dtype=np.float32)), rows, axis=0)


def close(random, rows):
    """Components 1e-7 apart, so that most rows keep their norm, and their bits, but for that."""
    return equal(random, rows) + 1e-7 * random.standard_normal((rows, 128), dtype=np.float32)


def crowd(random, rows):
    return unit(equal(random, rows) + 0.08 * random.standard_normal((rows, 128), dtype=np.float32))


MEASUREMENTS = {
    "faiss_256": versus("faiss", 256),
    "faiss_4096": versus("faiss", lambda plan: plan.many_probes),
    "faiss_1": versus("faiss", 1),
    "faiss_16": versus("faiss", 16),
    "faiss_256_wide": versus("faiss", 256, rows=lambda plan: plan.wide_rows, dim=512),
    "numpy_256": versus("numpy", 256),
    "usearch_256": versus("usearch", 256),
    "real_dlib128": versus("faiss", 256, real="lfw/dlib128.npy"),
    "real_mfn128": versus("faiss", 256, real="lfw/mfn128.npy"),
    "real_edge512": versus("faiss", 256, real="lfw_512/edge512.npy"),
    "limits_256": limits(256),
    "limits_1": limits(1),
    "recognize_wide": recognize,
    "growth": growth,
    "callers": callers,
    "memory": memory,
    "hard_equal": hard(equal),
    "hard_close": hard(close),
    "hard_one_identity": hard(crowd, "--ask", "recognize", "--rows-per-identity", 100_000_000),
}


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--versus", required=True)
    parser.add_argument("--faces", required=True, type=Path)
    parser.add_argument("--load", type=float, default=os.getloadavg()[0], help="what the machine did beside, before this")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", nargs="+", choices=MEASUREMENTS, default=list(MEASUREMENTS), metavar="NAME")
    parser.add_argument("--rounds", type=int, help="how often each side is timed; 3 searches a time")
    return parser.parse_args()


def main():
    asked = parse()
    if asked.load > page.QUIET:
        print(f"the machine is busy (load {asked.load:.1f}); the page will say so", file=sys.stderr)
    more = {"binary": asked.binary, "versus": asked.versus, "faces": asked.faces}
    if asked.quick:
        plan = Plan(**more, rows=20_000, wide_rows=10_000, grown_rows=200_000, many_probes=512, rounds=asked.rounds or 1,
                    repeat=3, callers=8)
        folder = ROOT / "target/bench-quick"
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(HERE / "README.md", folder)
    else:
        plan = Plan(**more, rows=350_000, wide_rows=200_000, grown_rows=3_500_000, many_probes=4096,
                    rounds=asked.rounds or 7, repeat=15, callers=64)
        folder = HERE
    results = folder / "results.jsonl"
    found = {} if len(asked.only) == len(MEASUREMENTS) else page.read(results)
    found["machine"] = {"name": "machine", "result": machine(plan, asked.quick, asked.load)}
    failed = []
    for name in asked.only:
        started = time.monotonic()
        try:
            result = MEASUREMENTS[name](plan)
        except (RuntimeError, OSError, ValueError) as error:
            print(f"{name}: {error}", file=sys.stderr)
            failed.append(name)
            found.pop(name, None)
            continue
        print(f"{name}: done in {time.monotonic() - started:.1f} s", file=sys.stderr)
        found[name] = {"name": name, "at": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M"), "result": result}
        # At once, so that what was measured outlives an interruption.
        write(results, found)
    page.write(results, folder / "README.md")
    print(f"{os.path.relpath(folder / 'README.md')} is written", file=sys.stderr)
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


def write(results, found):
    order = ["machine", *MEASUREMENTS]
    results.write_text("".join(json.dumps(found[name]) + "\n" for name in order if name in found))


def machine(plan, quick, load):
    report = bench(plan, "--rows", 1000, "--probes-count", 1, "--repeat", 1)
    peers = {name: importlib.metadata.version(name) for name in ("faiss-cpu", "numpy", "usearch")}
    return {"cpu": report["device"], "path": report["driver"], "cores": os.cpu_count(), "threads": report["threads"],
            "peers": peers, "quick": quick, "load": round(load, 2)}


if __name__ == "__main__":
    main()
