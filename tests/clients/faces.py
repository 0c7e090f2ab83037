"""Real faces, and what NumPy says of them: nothing here knows how Lookalike computes."""

from dataclasses import dataclass

import numpy as np
from conftest import FACES

# A threshold and a margin that suit each model about: what is compared must have decisions of every kind.
CUTS = {"dlib128": (0.942, 0.02), "mfn128": (0.4, 0.05), "edge512": (0.4, 0.05)}
SETS = [("orl", "dlib128"), ("orl", "mfn128"), ("orl", "edge512"), ("lfw", "dlib128"), ("lfw", "mfn128"),
        ("lfw_512", "edge512")]


@dataclass
class Set:
    """Vectors, and who each is: `people[i]` is a number, `labels[i]` its line."""

    vectors: np.ndarray
    labels: list
    people: np.ndarray

    def part(self, rows):
        return Set(self.vectors[rows], [self.labels[row] for row in rows], self.people[rows])

    def write(self, folder, name):
        """Writes .npy and labels; answers the two files."""
        vectors, labels = folder / f"{name}.npy", folder / f"{name}.txt"
        np.save(vectors, self.vectors)
        labels.write_text("\n".join(self.labels) + "\n")
        return vectors, labels


def load(name, model):
    labels = (FACES / name / "labels.txt").read_text().split()
    _, people = np.unique([label.split("/")[0] for label in labels], return_inverse=True)
    return Set(np.load(FACES / name / f"{model}.npy"), labels, people)


def rows(name, which):
    return np.array((FACES / name / f"{which}_rows.txt").read_text().split(), dtype=int)


def scores(probes, gallery):
    """Cosines in float64, rounded once."""
    return (probes.astype(np.float64) @ gallery.astype(np.float64).T).astype(np.float32)


def ranked(score, people):
    """For each probe the nearest row of each of the two nearest persons: rows and scores, -1 and -inf where there is none.
    `score` is -inf where a row is left out."""
    out_rows, out_scores = np.full((len(score), 2), -1), np.full((len(score), 2), -np.inf, dtype=np.float32)
    score = score.copy()
    for place in range(2):
        best = score.argmax(axis=1)  # The first of equals.
        found = score[np.arange(len(score)), best]
        there = np.isfinite(found)
        out_rows[there, place], out_scores[there, place] = best[there], found[there]
        score[people[None, :] == people[best][:, None]] = -np.inf
    return out_rows, out_scores


def decide(best, second, threshold, margin):
    """Decisions from float32 scores, as the README words them: both bounds inclusive, no second means no margin."""
    lead = (best.astype(np.float64) - second.astype(np.float64)).astype(np.float32)
    named = (best >= np.float32(threshold)) & (~np.isfinite(second) | (lead >= np.float32(margin)))
    text = np.where(named, "RECOGNIZED", np.where(best < np.float32(threshold), "BELOW_THRESHOLD", "AMBIGUOUS"))
    return np.where(np.isfinite(best), text, "NO_CANDIDATE"), lead


def outcomes(score, gallery_people, probe_people, cut):
    """What validate is to say of every probe: outcome, best row, best score, lead."""
    known = np.isfinite(np.where(gallery_people[None, :] == probe_people[:, None], score, -np.inf)).any(axis=1)
    best_rows, best = ranked(score, gallery_people)
    decisions, lead = decide(best[:, 0], best[:, 1], *cut)
    right = gallery_people[best_rows[:, 0]] == probe_people
    words = {"RECOGNIZED": "recognized", "BELOW_THRESHOLD": "below_threshold", "AMBIGUOUS": "ambiguous"}

    def word(i):
        if not known[i]:
            return "stranger_named" if decisions[i] == "RECOGNIZED" else "stranger_refused"
        return "wrong_identity" if decisions[i] == "RECOGNIZED" and not right[i] else words[decisions[i]]

    return [word(i) for i in range(len(score))], best_rows, best, lead
