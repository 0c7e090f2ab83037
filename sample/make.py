#!/usr/bin/env python3
"""Makes this folder's data again: python3 sample/make.py SOURCE

SOURCE holds dlib128.npy (f32[199, 128]) and labels.txt (person_001/img_01, a line a row) of the AT&T/ORL faces.
Needs NumPy. The same source gives the same bytes. expected.json is computed in float64 and knows nothing of Lookalike.
"""

import csv
import json
import math
import pathlib
import sys

import numpy as np

HERE = pathlib.Path(__file__).parent
MODEL_ID = "dlib_resnet_v1"
THRESHOLD = 0.942
MIN_MARGIN = 0.04
KNOWN_PERSONS = 12
TOP = 5

# Images that are in no gallery row: of known persons, then of persons the gallery does not hold.
PROBES = [
    (1, 8), (2, 8), (3, 10), (5, 9), (8, 7), (9, 7), (12, 9),
    (13, 10), (15, 6), (16, 2), (18, 5), (20, 3),
]


def gallery_images(person):
    """How many images of a known person the gallery holds: 4, 5 or 6."""
    return 4 + person % 3


def name(person):
    return f"person_{person:03d}"


def shortest(value):
    """The shortest decimal that reads back to the same float32."""
    return float(np.format_float_positional(value, unique=True))


def decide(scores, identities):
    """The best identity, its score and its lead, and what is concluded of them."""
    best = {}
    for score, identity in zip(scores, identities):
        best[identity] = max(score, best.get(identity, -2.0))
    (first, score), (second, runner_up) = sorted(best.items(), key=lambda item: -item[1])[:2]
    margin = score - runner_up
    if score < THRESHOLD:
        decision = "BELOW_THRESHOLD"
    elif margin < MIN_MARGIN:
        decision = "AMBIGUOUS"
    else:
        decision = "RECOGNIZED"
    return {"decision": decision, "nearest": first, "score": score, "margin": margin, "runner_up": second}


def main():
    source = pathlib.Path(sys.argv[1])
    vectors = np.load(source / "dlib128.npy")
    labels = (source / "labels.txt").read_text().split()
    row_of = {label: row for row, label in enumerate(labels)}

    # By image, then person: as photos come in, not sorted by person.
    gallery = [
        (person, image)
        for image in range(1, 7)
        for person in range(1, KNOWN_PERSONS + 1)
        if image <= gallery_images(person)
    ]
    rows = [row_of[f"{name(person)}/img_{image:02d}"] for person, image in gallery]
    np.save(HERE / "gallery.npy", vectors[rows])
    with open(HERE / "gallery.csv", "w", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(["identity", "prototype_id", "source"])
        for person, image in gallery:
            out.writerow([name(person), f"img_{image:02d}", f"{name(person)}/img_{image:02d}.pgm"])

    known = vectors[rows].astype(np.float64)
    identities = [name(person) for person, _ in gallery]
    expected = []
    with open(HERE / "probes.jsonl", "w") as file:
        for person, image in PROBES:
            probe = vectors[row_of[f"{name(person)}/img_{image:02d}"]]
            values = [shortest(value) for value in probe]
            assert np.array_equal(np.array(values, dtype=np.float32), probe)
            probe_id = f"{name(person)}-img_{image:02d}"
            record = {
                "id": probe_id,
                "identity": name(person),
                "source": f"{name(person)}/img_{image:02d}.pgm",
                "embedding": values,
            }
            file.write(json.dumps(record) + "\n")
            # Exact products, summed exactly, rounded once: no order of summation to depend on.
            scores = [math.fsum(row) for row in known * probe.astype(np.float64)]
            top = sorted(range(len(scores)), key=lambda row: (-scores[row], row))[:TOP]
            expected.append(
                {
                    "probe_id": probe_id,
                    **decide(scores, identities),
                    "top": [{"index": row, "score": scores[row]} for row in top],
                }
            )
    document = {
        "model_id": MODEL_ID,
        "threshold": THRESHOLD,
        "min_margin": MIN_MARGIN,
        "probes": expected,
    }
    (HERE / "expected.json").write_text(json.dumps(document, indent=1) + "\n")
    for probe in expected:
        print(f"{probe['probe_id']:20} {probe['decision']:16} {probe['nearest']} {probe['score']:.6f} {probe['margin']:.6f}")


if __name__ == "__main__":
    main()
