"""A Python client with generated stubs, its answers held against NumPy in float64."""

import json

import grpc
import numpy as np
import pytest
from conftest import FACES, SAMPLE, lookalike, serve, stop


def ranked(rows, probe, k):
    """(indices, scores): the first k: score descending, then index."""
    scores = (rows.astype(np.float64) @ probe.astype(np.float64)).astype(np.float32)
    order = np.lexsort((np.arange(len(scores)), -scores))[:k]
    return order, scores[order]


def packed(vector):
    return {"packed": vector.astype("<f4").tobytes()}


def test_decides_as_numpy_does(server, stubs):
    messages, services = stubs
    expected = json.loads((SAMPLE / "expected.json").read_text())
    probes = [json.loads(line) for line in (SAMPLE / "probes.jsonl").read_text().splitlines()]
    request = messages.RecognizeRequest(
        probes=[{"id": probe["id"], "embedding": {"values": probe["embedding"]}} for probe in probes])
    with server.channel() as channel:
        reply, call = services.RecognitionStub(channel).Recognize.with_call(
            request, metadata=[("x-request-id", "photo-1")])
    assert reply.meta.request_id == "photo-1"
    assert dict(call.initial_metadata())["x-request-id"] == "photo-1"
    assert len(reply.recognitions) == len(expected["probes"]) >= 10
    for got, want in zip(reply.recognitions, expected["probes"]):
        assert got.probe_id == want["probe_id"]
        assert messages.Decision.Name(got.decision) == "DECISION_" + want["decision"]
        assert got.nearest.identity == want["nearest"]
        assert got.score == pytest.approx(want["score"], abs=1e-7)
        assert got.HasField("margin") and got.margin == pytest.approx(want["margin"], abs=1e-7)


def test_a_fault_names_its_field(server, stubs):
    messages, services = stubs
    request = messages.SearchRequest(probes=[{"embedding": {"values": [float("nan")] * 128}}], top_k=3)
    with server.channel() as channel, pytest.raises(grpc.RpcError) as refused:
        services.RecognitionStub(channel).Search(request)
    assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert "probes[0].embedding" in refused.value.details()


@pytest.mark.parametrize("model", ["dlib128", "mfn128"])
def test_real_faces_are_ranked_as_numpy_ranks_them(model, stubs, tmp_path):
    """Every known and unknown probe of LFW's open-set protocol over its whole gallery, top 10."""
    assert FACES.is_dir(), f"the real faces belong beside the checkout: {FACES}"
    messages, services = stubs
    lfw = FACES / "lfw"
    faces = np.load(lfw / f"{model}.npy")
    labels = (lfw / "labels.txt").read_text().splitlines()
    rows = np.loadtxt(lfw / "gallery_rows.txt", dtype=int)
    asked = np.concatenate([np.loadtxt(lfw / f"probes_{kind}_rows.txt", dtype=int) for kind in ("known", "unknown")])
    np.save(tmp_path / "gallery.npy", faces[rows])
    (tmp_path / "labels.txt").write_text("".join(labels[row] + "\n" for row in rows))
    lookalike("gallery", "import", "--data", tmp_path / "data", "--labels", tmp_path / "labels.txt",
              tmp_path / "gallery.npy")
    server = serve(tmp_path / "data", "--backend", "cpu")
    results = []
    with server.channel() as channel:
        recognition = services.RecognitionStub(channel)
        for batch in np.array_split(asked, len(asked) // 256 + 1):
            request = messages.SearchRequest(probes=[{"embedding": packed(faces[row])} for row in batch], top_k=10)
            results += recognition.Search(request).results
    stop(server)
    assert len(results) == len(asked) > 1000
    for row, result in zip(asked, results):
        indices, scores = ranked(faces[rows], faces[row], 10)
        assert [neighbor.index for neighbor in result.neighbors] == indices.tolist(), f"probe row {row}"
        got = np.array([neighbor.score for neighbor in result.neighbors], dtype=np.float32)
        assert np.array_equal(got, scores), f"probe row {row}"
