"""Times `lookalike audit` and `cluster` on 100 000 made embeddings: 20 000 persons of five, some far off, some of two names.

    python3 tests/bench/quality.py target/release/lookalike
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

PERSONS, EACH, DIM, LIMIT_S = 20_000, 5, 128, 60


def made(folder):
    rng = np.random.default_rng(1)
    centres = rng.standard_normal((PERSONS, DIM))
    # One in a hundred looks like the one before.
    alike = np.arange(100, PERSONS, 100)
    centres[alike] = centres[alike - 1] + 0.3 * rng.standard_normal((len(alike), DIM))
    noise = rng.standard_normal((PERSONS, EACH, DIM)) * rng.uniform(0.3, 1.2, (PERSONS, EACH, 1))
    rows = (centres[:, None] + noise).reshape(-1, DIM)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    np.save(folder / "all.npy", rows.astype(np.float32))
    labels = (f"person_{person:05}/{one}" for person in range(PERSONS) for one in range(EACH))
    (folder / "all.txt").write_text("\n".join(labels) + "\n")


def main(program):
    slow = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        made(folder)
        faces = ["--embeddings", folder / "all.npy", "--labels", folder / "all.txt"]
        commands = {
            "audit": ["audit", *faces, "--threshold", "0.5"],
            "cluster": ["cluster", "--probes", folder / "all.npy", "--everyone", "--min-score", "0.5"],
            "select": ["select", *faces, "--threshold", "0.5", "--format", "json"],
            "calibrate": ["calibrate", *faces],
        }
        for command, arguments in commands.items():
            started = time.monotonic()
            subprocess.run([program, *map(str, arguments), "--set", "backend.kind=cpu"], stdout=subprocess.DEVNULL, check=True)
            seconds = time.monotonic() - started
            print(f"{command}: {seconds:.1f} s for {PERSONS * EACH} embeddings", flush=True)
            if command in ("audit", "cluster") and seconds > LIMIT_S:
                slow.append(command)
    sys.exit(f"slower than {LIMIT_S} s: {', '.join(slow)}" if slow else 0)


if __name__ == "__main__":
    main(sys.argv[1])
