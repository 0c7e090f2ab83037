"""`cluster` against scikit-learn's DBSCAN, and `audit` against NumPy."""

import json

import faces
import numpy as np
import pytest
from conftest import lookalike
from sklearn.cluster import DBSCAN

# Probes, model, least score, least probes: groups of every size, borders, and probes that are alone.
CASES = [("orl", "dlib128", 0.95, 3), ("orl", "mfn128", 0.6, 2), ("lfw", "mfn128", 0.45, 3), ("lfw", "dlib128", 0.94, 4),
         ("lfw_512", "edge512", 0.03, 60), ("lfw_512", "edge512", 0.4, 3)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case)))
def test_groups_are_those_of_dbscan(case, tmp_path):
    name, model, least, count = case
    everyone = faces.load(name, model)
    vectors, _ = everyone.write(tmp_path, "probes")
    told = lookalike("cluster", "--probes", vectors, "--everyone", "--min-score", least, "--min-probes", count,
                     "--format", "jsonl")
    got = [-1 if (line := json.loads(text))["cluster"] is None else line["cluster"] for text in told.splitlines()]
    score = faces.scores(everyone.vectors, everyone.vectors).astype(np.float64)
    # Distances that are in reach exactly where scores are: no rounding between.
    apart = np.where(score >= np.float64(np.float32(least)), 0.0, 1.0)
    np.fill_diagonal(apart, 0.0)
    expected = DBSCAN(eps=0.5, min_samples=count, metric="precomputed").fit_predict(apart)
    assert got == expected.tolist()
    print(f"\n{case}: {expected.max() + 1} groups, {(expected < 0).sum()} of {len(expected)} alone")


def test_whom_the_gallery_knows_is_in_no_group(tmp_path):
    everyone = faces.load("orl", "mfn128")
    gallery = everyone.part(faces.rows("orl", "gallery"))
    probes = everyone.part(np.concatenate([faces.rows("orl", "probes_known"), faces.rows("orl", "probes_unknown")]))
    vectors, labels = gallery.write(tmp_path, "gallery")
    lookalike("gallery", "import", "--data", tmp_path / "data", "--labels", labels, vectors, "--threshold", 0.5, "--min-margin", 0.05)
    vectors, _ = probes.write(tmp_path, "probes")
    report = json.loads(lookalike("cluster", "--data", tmp_path / "data", "--probes", vectors, "--format", "json"))
    assert report["min_score"] == 0.5
    people = set(gallery.people)
    grouped = [[probes.people[int(probe)] for probe in one["probes"]] for one in report["clusters"]]
    # Strangers of one person are a group, and nobody known is among them.
    assert all(len(set(group)) == 1 and group[0] not in people for group in grouped)
    assert {group[0] for group in grouped} == set(probes.people) - people
    assert report["recognized"] + len(report["alone"]) + sum(map(len, grouped)) == len(probes.labels)
    for one in report["clusters"]:
        mine = probes.vectors[[int(probe) for probe in one["probes"]]]
        near = (faces.scores(mine, mine) >= 0.5).sum(axis=1)
        assert one["typical"] == one["probes"][near.argmax()]


@pytest.mark.parametrize("case", [("lfw", "mfn128"), ("lfw", "dlib128")], ids=lambda case: "-".join(case))
def test_an_audit_finds_what_numpy_finds(case, tmp_path):
    everyone, (threshold, margin) = faces.load(*case), faces.CUTS[case[1]]
    vectors, labels = everyone.write(tmp_path, "all")
    flags = ["--embeddings", vectors, "--labels", labels, "--threshold", threshold, "--min-margin", margin]
    report = json.loads(lookalike("audit", *flags, "--most", 40, "--duplicate", 0.97, "--format", "json"))
    score = faces.scores(everyone.vectors, everyone.vectors)
    np.fill_diagonal(score, -np.inf)
    mine = everyone.people[None, :] == everyone.people[:, None]
    own, other = np.where(mine, score, -np.inf), np.where(mine, -np.inf, score)
    own_best, other_best = own.max(axis=1), other.max(axis=1)
    size = mine.sum(axis=1)

    def listed(kind):
        return [one["index"] for one in report[kind]]

    misplaced = np.flatnonzero(np.isfinite(own_best) & (other_best > own_best))
    assert report["counts"]["misplaced"] == len(misplaced)
    assert listed("misplaced") == sorted(misplaced, key=lambda i: (-(other_best[i] - own_best[i]), i))[:40]
    outliers = np.flatnonzero((size >= 3) & (own_best < np.float32(threshold)))
    assert report["counts"]["outliers"] == len(outliers)
    assert listed("outliers") == sorted(outliers, key=lambda i: (own_best[i], i))[:40]
    rows = np.arange(len(score))
    duplicates = np.flatnonzero((own_best >= np.float32(0.97)) & (own.argmax(axis=1) < rows))
    assert report["counts"]["duplicates"] == len(duplicates)
    assert listed("duplicates") == sorted(duplicates, key=lambda i: (-own_best[i], i))[:40]
    names = [label.split("/")[0] for label in everyone.labels]
    pairs = {}
    for row, near in enumerate(other.argmax(axis=1)):
        key = frozenset((names[row], names[near]))
        pairs[key] = max(pairs.get(key, -1), other_best[row])
    assert report["counts"]["confusable"] == len(pairs)
    expected = sorted(pairs.values(), reverse=True)[:40]
    assert [pair["score"] for pair in report["confusable"]] == pytest.approx(expected, abs=1e-6)
    assert all(pairs[frozenset(pair["identities"])] == pytest.approx(pair["score"], abs=1e-6) for pair in report["confusable"])
    # Persons that the data's makers take for one under two labels are found.
    found = {frozenset((one["identity"], one["taken_for"])) for one in report["split"]}
    assert frozenset(("person_0435", "person_1239")) in found and frozenset(("person_0024", "person_1888")) in found
    # What would change without a prototype is what does.
    cut = (threshold, margin)
    before = np.array(faces.outcomes(score, everyone.people, everyone.people, cut)[0])
    right = np.isin(before, ["recognized", "stranger_refused"])
    for doubt in report["misplaced"][:10]:
        rest = np.delete(np.arange(len(score)), doubt["index"])
        now = np.array(faces.outcomes(score[np.ix_(rest, rest)], everyone.people[rest], everyone.people[rest], cut)[0])
        is_right = np.isin(now, ["recognized", "stranger_refused"])
        without = {"mended": int((~right[rest] & is_right).sum()), "broken": int((right[rest] & ~is_right).sum())}
        assert doubt["without"] == without


def test_two_persons_under_one_name_are_found(tmp_path):
    everyone = faces.load("orl", "mfn128")
    everyone.labels = [label.replace("person_002/", "person_001/x") for label in everyone.labels]
    vectors, labels = everyone.write(tmp_path, "all")
    report = json.loads(lookalike("audit", "--embeddings", vectors, "--labels", labels, "--threshold", 0.5, "--format", "json"))
    [merged] = report["merged"]
    assert merged["identity"] == "person_001" and report["counts"]["merged"] == 1
    assert sorted({name[:1] for name in group} for group in merged["groups"]) == sorted([{"i"}, {"x"}])


def test_who_is_exactly_as_near_to_another_is_not_nearer(tmp_path):
    """Rows that are all the same: nobody is nearer to anybody, and no threshold or margin tells them apart."""
    rows = faces.Set(np.tile(np.eye(1, 8, dtype=np.float32), (24, 1)), [f"person_{row // 2:02}/{row}" for row in range(24)], np.arange(24) // 2)
    vectors, labels = rows.write(tmp_path, "same")
    report = json.loads(lookalike("audit", "--embeddings", vectors, "--labels", labels, "--format", "json"))
    assert (report["counts"]["misplaced"], report["counts"]["tied"], len(report["tied"])) == (0, 24, 20)
    assert all(one["own"]["score"] == one["other"]["score"] == 1 for one in report["tied"])
    flags = ["gallery", "import", "--data", tmp_path / "data", "--labels", labels, vectors, "--on-conflict"]
    told = lookalike(*flags, "reject", code=3)
    assert "person_00/0 looks like person_01: 1.000000 to person_01/2, exactly as near as the nearest of its own, 1" in told
    assert "nearer than" not in told
    told = lookalike("calibrate", "--embeddings", vectors, "--labels", labels, "--format", "json", code=3)
    report = json.JSONDecoder().raw_decode(told)[0]["recommended"]
    assert (report["promised"], report["estimated"], report["why_not"]) == (None, None, "not_told_apart")
    assert "no threshold and margin tells these persons apart" in told and "too few" not in told


def test_persons_of_more_than_a_thousand_prototypes_are_audited_alike(tmp_path):
    """Their own nearest come from scans of the gallery instead of from scores pair by pair."""
    everyone = faces.load("lfw", "mfn128")
    everyone.people = np.arange(len(everyone.labels)) % 4
    everyone.labels = [f"crowd_{person}/{row}" for row, person in enumerate(everyone.people)]
    vectors, labels = everyone.write(tmp_path, "all")
    report = json.loads(lookalike("audit", "--embeddings", vectors, "--labels", labels, "--threshold", 0.2, "--min-margin", 0,
                                  "--most", 30, "--duplicate", 0.9, "--format", "json"))
    score = faces.scores(everyone.vectors, everyone.vectors)
    np.fill_diagonal(score, -np.inf)
    mine = everyone.people[None, :] == everyone.people[:, None]
    own_best, other_best = np.where(mine, score, -np.inf).max(axis=1), np.where(mine, -np.inf, score).max(axis=1)
    assert report["counts"]["misplaced"] == (other_best > own_best).sum()
    outliers = np.flatnonzero(own_best < np.float32(0.2))
    assert [one["index"] for one in report["outliers"]] == sorted(outliers, key=lambda i: (own_best[i], i))[:30]
    assert [one["own"]["score"] for one in report["misplaced"]] == pytest.approx(
        [own_best[one["index"]] for one in report["misplaced"]], abs=1e-6)
