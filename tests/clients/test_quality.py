"""`validate` and `select` against NumPy, decision by decision, on real faces."""

import json
import os
import sqlite3
from collections import Counter

import faces
import numpy as np
import pytest
from conftest import lookalike
from faces import CUTS, SETS


def ids(case):
    return "-".join(case)


def imported(folder, gallery, cut):
    """A data folder with this gallery, and the flags that name it."""
    vectors, labels = gallery.write(folder, "gallery")
    lookalike("gallery", "import", "--data", folder / "data", "--labels", labels, vectors,
              "--threshold", cut[0], "--min-margin", cut[1])
    return ["--data", folder / "data"]


def validated(*arguments):
    return [json.loads(line) for line in lookalike("validate", *arguments, "--format", "jsonl").splitlines()]


def compare(cases, score, gallery, probes, cut):
    """Every case against NumPy; answers how many came out how."""
    expected, rows, best, lead = faces.outcomes(score, gallery.people, probes.people, cut)
    assert [case["outcome"] for case in cases] == expected
    for i, case in enumerate(cases):
        assert case["probe"] == probes.labels[i]
        for place, name in enumerate(["best", "runner_up"]):
            if rows[i, place] < 0:
                assert case[name] is None
                continue
            assert f"{case[name]['identity']}/{case[name]['prototype_id']}" == gallery.labels[rows[i, place]]
            assert case[name]["index"] == rows[i, place]
            assert abs(case[name]["score"] - best[i, place]) <= 1e-6
        if rows[i, 1] >= 0:
            assert abs(case["margin"] - lead[i]) <= 1e-6
    return Counter(expected)


@pytest.mark.parametrize("case", SETS, ids=ids)
def test_a_gallery_is_validated_with_each_prototype_left_out(case, tmp_path):
    gallery, cut = faces.load(*case), CUTS[case[1]]
    score = faces.scores(gallery.vectors, gallery.vectors)
    np.fill_diagonal(score, -np.inf)
    folder = imported(tmp_path, gallery, cut)
    counts = compare(validated(*folder), score, gallery, gallery, cut)
    report = json.loads(lookalike("validate", *folder, "--format", "json"))
    known = sum(count for outcome, count in counts.items() if not outcome.startswith("stranger"))
    assert report["leave_one_out"] and report["left_out"] == report["probes"] == len(gallery.labels)
    assert (report["known"], report["recognized"]) == (known, counts["recognized"])
    assert report["coverage"] == counts["recognized"] / known
    same = gallery.people[score.argmax(axis=1)] == gallery.people
    others = np.isfinite(np.where(gallery.people[None, :] == gallery.people[:, None], score, -np.inf)).any(axis=1)
    assert report["top1"] == (same & others).sum() / others.sum()
    assert {case["outcome"] for case in report["cases"]} <= set(counts) - {"recognized", "stranger_refused"}
    print(f"\n{ids(case)}: leave-one-out nearest right {report['top1']:.4f}, coverage {report['coverage']:.4f} at {cut}")


@pytest.mark.parametrize("case", SETS, ids=ids)
def test_known_and_unknown_probes_are_validated(case, tmp_path):
    everyone, cut = faces.load(*case), CUTS[case[1]]
    gallery = everyone.part(faces.rows(case[0], "gallery"))
    probes = everyone.part(np.concatenate([faces.rows(case[0], "probes_known"), faces.rows(case[0], "probes_unknown")]))
    vectors, labels = probes.write(tmp_path, "probes")
    asked = [*imported(tmp_path, gallery, cut), "--probes", vectors, "--labels", labels]
    score = faces.scores(probes.vectors, gallery.vectors)
    counts = compare(validated(*asked), score, gallery, probes, cut)
    report = json.loads(lookalike("validate", *asked, "--format", "json"))
    assert report["strangers"] == len(faces.rows(case[0], "probes_unknown"))
    assert report["false_positives"] == counts["stranger_named"] / report["strangers"]
    print(f"\n{ids(case)}: coverage {report['coverage']:.4f}, strangers named {report['false_positives']:.4f} at {cut}")


def test_backends_are_compared_and_bars_are_held(tmp_path):
    everyone = faces.load("orl", "dlib128")
    folder = imported(tmp_path, everyone, CUTS["dlib128"])
    compared = ["validate", *folder, "--backend", "cpu,reference", "--top-k", 16, "--format", "json"]
    [other] = json.loads(lookalike(*compared))["backends"]
    count = len(everyone.labels)
    assert (other["top1_differing"], other["decisions_differing"]) == (0, 0)
    assert other["positions"]["served"] == other["positions"]["of"] == 16 * count
    assert other["positions_left_out"]["served"] == 16 * count and other["largest_error"] <= 1e-6
    html = tmp_path / "report.html"
    told = lookalike("validate", *folder, "--threshold", 0.96, "--fail-under", "coverage=0.999", "--html", html, code=3)
    assert "known probes" in told
    page = html.read_text()
    assert page.count("<svg") == 2 and "coverage: expected at least 0.999" in page and "http://" not in page.replace(
        'xmlns="http://www.w3.org/2000/svg"', "")
    lookalike("validate", *folder, "--fail-under", "coverage=0.5", "--fail-over", "wrong=0.5")
    # A report takes the place of a file, never of anything else.
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert "expected a regular file" in lookalike("validate", *folder, "--html", pipe, code=1)
    assert pipe.is_fifo()


def test_a_backend_that_is_none_is_named_by_its_flag():
    told = lookalike("validate", "--backend", "cpu,foo", code=2)
    assert "backend.kind" in told and 'got "foo" (from flag --backend)' in told


def test_one_photo_holds_each_person_once(tmp_path):
    everyone, cut = faces.load("orl", "mfn128"), CUTS["mfn128"]
    gallery = everyone.part(faces.rows("orl", "gallery"))
    probes = everyone.part(np.concatenate([faces.rows("orl", "probes_known"), faces.rows("orl", "probes_unknown")]))
    # Every third probe in a photo with the next, most of them of one person; as many in no photo.
    photos = [f"photo_{row // 3}" if row % 3 < 2 else "" for row in range(len(probes.labels))]
    lines = [json.dumps({"id": label, "identity": label.split("/")[0], "group": photo, "embedding": vector.tolist()})
             for label, photo, vector in zip(probes.labels, photos, probes.vectors)]
    (tmp_path / "probes.jsonl").write_text("\n".join(lines))
    folder = [*imported(tmp_path, gallery, cut), "--probes", tmp_path / "probes.jsonl"]
    got = [case["outcome"] for case in validated(*folder, "--unique-in-group")]
    expected, rows, best, _ = faces.outcomes(faces.scores(probes.vectors, gallery.vectors), gallery.people, probes.people, cut)
    named = {"recognized", "wrong_identity", "stranger_named"}
    displaced = []
    for one in range(len(expected)):
        for other in range(len(expected)):
            if (one != other and photos[one] and photos[one] == photos[other] and {expected[one], expected[other]} <= named
                    and gallery.people[rows[one, 0]] == gallery.people[rows[other, 0]]
                    and (best[other, 0], one) > (best[one, 0], other)):
                displaced.append(one)
    refused = {"stranger_named": "stranger_refused"}
    after = [refused.get(outcome, "displaced") if row in displaced else outcome for row, outcome in enumerate(expected)]
    assert got == after and after.count("displaced") > 5
    assert [case["outcome"] for case in validated(*folder)] == expected
    report = json.loads(lookalike("validate", *folder, "--unique-in-group", "--format", "json"))
    assert report["displaced"] == after.count("displaced") and "displaced" in lookalike("validate", *folder, "--unique-in-group")
    vectors, labels = probes.write(tmp_path, "probes")
    told = lookalike("validate", *folder[:2], "--probes", vectors, "--labels", labels, "--unique-in-group", code=2)
    assert "--unique-in-group: expected probes with a group, got none" in told


def test_thresholds_of_persons_go_with_them(tmp_path):
    everyone, cut = faces.load("orl", "mfn128"), CUTS["mfn128"]
    folder = imported(tmp_path, everyone, cut)
    with sqlite3.connect(tmp_path / "data/lookalike.db") as db:
        db.execute("UPDATE identities SET threshold = 0.75, min_margin = 0.25 WHERE name = 'person_003'")

    def own(name, *flags):
        lookalike("select", *folder, "--into", name, *flags)
        with sqlite3.connect(tmp_path / "data/lookalike.db") as db:
            return db.execute("SELECT i.name, i.threshold, i.min_margin FROM identities i JOIN galleries g ON g.id = i.gallery "
                              "WHERE g.name = ? AND (i.threshold IS NOT NULL OR i.min_margin IS NOT NULL)", [name]).fetchall()

    assert own("chosen") == [("person_003", 0.75, 0.25)]
    # A threshold that goes over theirs when choosing goes over theirs in the gallery.
    assert own("other", "--threshold", 0.5) == [("person_003", None, 0.25)]
    assert own("neither", "--threshold", 0.5, "--min-margin", 0.1) == []


def medoids(distance, k):
    """Partitioning around medoids, worded as in the book: BUILD, then the best SWAP while there is one."""
    chosen = []
    for _ in range(min(k, len(distance))):
        def cost(one):
            return distance[:, chosen + [one]].min(axis=1).sum()
        chosen.append(min((one for one in range(len(distance)) if one not in chosen), key=cost))
    while chosen:
        now = distance[:, chosen].min(axis=1).sum()
        swaps = [(distance[:, chosen[:at] + [one] + chosen[at + 1:]].min(axis=1).sum(), at, one)
                 for at in range(len(chosen)) for one in range(len(distance)) if one not in chosen]
        best = min(swaps, default=(np.inf, 0, 0))
        if best[0] >= now - 1e-9:
            return chosen
        chosen[best[1]] = best[2]
    return chosen


@pytest.mark.parametrize("case", SETS, ids=ids)
def test_chosen_prototypes_recognise_as_numpy_says_and_more_than_others(case, tmp_path):
    everyone, (threshold, margin) = faces.load(*case), CUTS[case[1]]
    vectors, labels = everyone.write(tmp_path, "all")
    report = json.loads(lookalike("select", "--embeddings", vectors, "--labels", labels, "--threshold", threshold,
                                  "--min-margin", margin, "--prototypes", 4, "--format", "json",
                                  "--out", tmp_path / "chosen.jsonl"))
    score = faces.scores(everyone.vectors, everyone.vectors)
    own = everyone.people[None, :] == everyone.people[:, None]
    rival = np.where(own, -np.inf, score).max(axis=1)
    rng = np.random.default_rng(5)
    totals = Counter()
    for one in report["selected"]:
        mine = np.array([i for i, label in enumerate(everyone.labels) if label.startswith(one["identity"] + "/")])
        inner = score[np.ix_(mine, mine)].copy()
        np.fill_diagonal(inner, -np.inf)

        def recognised(chosen):
            best = inner[:, chosen].max(axis=1)
            decisions, _ = faces.decide(best, rival[mine], threshold, margin)
            return (decisions == "RECOGNIZED") & (best > rival[mine])

        chosen = [list(mine).index(choice["index"]) for choice in one["choices"]]
        assert 1 <= len(chosen) <= 4 and len(set(chosen)) == len(chosen)
        if len(mine) == 1:
            assert one["coverage"] is None
            continue
        # What is told of every choice is what NumPy finds.
        gained = [recognised(chosen[:count + 1]).sum() for count in range(len(chosen))]
        assert [choice["gain"] for choice in one["choices"]] == list(np.diff([0, *gained]))
        assert one["recognized"] == gained[-1]
        assert one["coverage"] == gained[-1] / len(mine)
        # The medoids are medoids, and nothing was added for nothing.
        count = sum(choice["origin"] == "cluster_medoid" for choice in one["choices"])
        distance = 1 - np.where(np.isfinite(inner), inner, 1).astype(np.float64)
        assert sorted(chosen[:count]) == sorted(medoids(distance, count))
        assert all(choice["gain"] > 0 for choice in one["choices"][count:])
        # No other choice of as many does better: plain medoids, and random ones.
        rivals = [medoids(distance, len(chosen))]
        rivals += [rng.choice(len(mine), len(chosen), replace=False) for _ in range(20)]
        assert all(recognised(list(other)).sum() <= gained[-1] for other in rivals), one["identity"]
        totals.update(probes=len(mine), recognised=int(gained[-1]), medoids=int(recognised(rivals[0]).sum()),
                      random=int(np.mean([recognised(list(other)).sum() for other in rivals[1:]]) * 1000))
    assert (report["probes"], report["recognized"]) == (totals["probes"], totals["recognised"])
    share = {name: totals[name] / totals["probes"] for name in ["recognised", "medoids"]}
    print(f"\n{ids(case)}: {report['prototypes']} of {report['embeddings']} chosen, coverage {share['recognised']:.4f}, "
          f"medoids {share['medoids']:.4f}, random {totals['random'] / totals['probes'] / 1000:.4f}")
    # What was written is what was chosen, to the bit.
    written = [json.loads(line) for line in (tmp_path / "chosen.jsonl").read_text().splitlines()]
    told = [choice for one in report["selected"] for choice in one["choices"]]
    assert [line["origin"] for line in written] == [choice["origin"] for choice in told]
    kept = np.array([line["embedding"] for line in written], dtype=np.float32)
    assert (kept == everyone.vectors[[choice["index"] for choice in told]]).all()


@pytest.mark.parametrize("case", [("orl", "dlib128"), ("lfw", "mfn128")], ids=ids)
def test_chosen_prototypes_go_into_a_gallery_that_validates(case, tmp_path):
    everyone, cut = faces.load(*case), CUTS[case[1]]
    folder = imported(tmp_path, everyone, cut)
    report = json.loads(lookalike("select", *folder, "--prototypes", 4, "--into", "chosen", "--format", "json"))
    # In the order in which they were put there.
    rows = np.array([choice["index"] for one in report["selected"] for choice in one["choices"]])
    gallery = everyone.part(rows)
    vectors, labels = everyone.write(tmp_path, "probes")
    cases = validated(*folder, "--gallery", "chosen", "--probes", vectors, "--labels", labels)
    score = faces.scores(everyone.vectors, gallery.vectors)
    score[rows, np.arange(len(rows))] = -np.inf
    compare(cases, score, gallery, everyone, cut)
    assert "there already" in lookalike("select", *folder, "--into", "chosen", code=1)


def test_an_import_tells_who_looks_like_somebody_else(tmp_path):
    everyone = faces.load("orl", "mfn128")
    data = ["--data", tmp_path / "data"]
    held = everyone.part(np.flatnonzero(everyone.people < 10))
    vectors, labels = held.write(tmp_path, "held")
    sound = lookalike("gallery", "import", *data, "--labels", labels, vectors, "--threshold", 0.5, "--on-conflict", "reject",
                      "--format", "json")
    assert json.loads(sound)["conflicts"] == []
    # Of person 3 one under the name of person 5, and one under a name of its own; of person 15 one that is nobody's.
    new = everyone.part([int(np.flatnonzero(everyone.people == person)[0]) for person in [2, 2, 14]])
    new.labels = ["person_005/new", "person_099/new", "person_015/new"]
    vectors, labels = new.write(tmp_path, "new")
    flags = ["gallery", "import", *data, "--labels", labels, vectors, "--on-conflict"]
    told = lookalike(*flags, "reject", code=3)
    assert "person_005/new looks like person_099" in told or "person_005/new looks like person_003" in told
    assert "nothing was imported" in told and "nearer than the nearest of its own" in told
    # In JSON too, what was found is the result.
    report, end = json.JSONDecoder().raw_decode(lookalike(*flags, "reject", "--format", "json", code=3))
    assert (report["prototypes"], report["total"], report["generation"]) == (0, len(held.labels), 1)
    assert [conflict["likeness"] for conflict in report["conflicts"]] == ["nearer", "taken_for"]
    [gallery] = json.loads(lookalike("gallery", "list", *data, "--format", "json"))["galleries"]
    assert int(gallery["prototypes"]) == len(held.labels)
    report = json.loads(lookalike(*flags, "warn", "--format", "json"))
    assert [conflict["identity"] for conflict in report["conflicts"]] == ["person_005", "person_099"]
    assert report["conflicts"][1]["own"] is None and report["conflicts"][0]["own"]["identity"] == "person_005"
    assert int(report["total"]) == len(held.labels) + 3


def test_of_a_person_of_very_many_embeddings_some_are_considered(tmp_path):
    everyone = faces.load("lfw", "mfn128")
    everyone.labels = [f"crowd/{row}" for row in range(len(everyone.labels))]
    vectors, labels = everyone.write(tmp_path, "all")
    [one] = json.loads(lookalike("select", "--embeddings", vectors, "--labels", labels, "--threshold", 0.2, "--medoids", 1,
                                 "--prototypes", 2, "--format", "json"))["selected"]
    assert (one["embeddings"], one["considered"], one["prototypes"]) == (len(everyone.labels), 4096, 2)
    # With nobody else there, whoever is near enough is recognised.
    considered = np.arange(4096) * len(everyone.labels) // 4096
    score = faces.scores(everyone.vectors[considered], everyone.vectors[[choice["index"] for choice in one["choices"]]])
    score[considered[:, None] == np.array([choice["index"] for choice in one["choices"]])] = -np.inf
    assert one["recognized"] == (score >= np.float32(0.2)).any(axis=1).sum()
