"""grpcurl with no proto files at hand: server reflection must tell it everything."""

import json
import subprocess

from conftest import GRPCURL, SAMPLE, lookalike


def grpcurl(server, *arguments, fails=False):
    done = subprocess.run([GRPCURL, "-plaintext", *arguments], capture_output=True, text=True, timeout=60)
    assert (done.returncode != 0) == fails, done.stdout + done.stderr
    return done.stderr if fails else done.stdout


def first_probe():
    with open(SAMPLE / "probes.jsonl") as lines:
        return json.loads(next(lines))


def test_lists_the_services(server):
    services = grpcurl(server, server.address, "list").split()
    assert {"lookalike.v1.Recognition", "lookalike.v1.Operations", "grpc.health.v1.Health"} <= set(services)


def test_describes_a_message_with_its_comments(server):
    described = grpcurl(server, server.address, "describe", "lookalike.v1.RecognizeRequest")
    assert "optional float threshold = 3;" in described
    assert "inclusive" in described, "comments travel with the descriptors"


def test_gets_a_decision(server):
    probe = first_probe()
    request = {"probes": [{"id": probe["id"], "embedding": {"values": probe["embedding"]}}]}
    answer = grpcurl(server, "-d", json.dumps(request), server.address, "lookalike.v1.Recognition/Recognize")
    [recognition] = json.loads(answer)["recognitions"]
    expected = json.loads((SAMPLE / "expected.json").read_text())["probes"][0]
    assert recognition["probeId"] == expected["probe_id"] == probe["id"]
    assert recognition["decision"] == "DECISION_" + expected["decision"]
    assert recognition["identity"] == expected["nearest"]


def test_explains_a_decision(server):
    probe = first_probe()
    request = {"probe": {"id": probe["id"], "embedding": {"values": probe["embedding"]}}, "maxCandidates": 2}
    answer = json.loads(grpcurl(server, "-d", json.dumps(request), server.address, "lookalike.v1.Recognition/Explain"))
    first, second = answer["leading"]
    assert answer["recognition"]["identity"] == first["candidate"]["identity"] == probe["identity"]
    assert first["origin"] == "import" and first["lead"] == answer["recognition"]["margin"] > 0 > second["lead"]
    turns = {turn["decision"]: turn for turn in answer["turns"]}
    assert set(turns) == {"DECISION_BELOW_THRESHOLD", "DECISION_AMBIGUOUS"}
    assert turns["DECISION_BELOW_THRESHOLD"]["threshold"] > answer["recognition"]["score"]
    assert turns["DECISION_AMBIGUOUS"]["minMargin"] > answer["recognition"]["margin"]


def test_chooses_prototypes_of_one_person(server, tmp_path):
    def ask(fails=False, **request):
        flags = ["-d", json.dumps(request), server.address, "lookalike.v1.Recognition/SelectPrototypes"]
        return grpcurl(server, *flags, fails=fails)

    # What the command chooses of the same person.
    told = lookalike("select", "--embeddings", SAMPLE / "gallery.npy", "--labels", SAMPLE / "gallery.csv", "--threshold", "0.942",
                     "--min-margin", "0.04", "--prototypes", "3", "--format", "json")
    for one in json.loads(told)["selected"]:
        answer = json.loads(ask(identity=one["identity"], maxPrototypes=3))
        assert [chosen["prototypeId"] for chosen in answer["selected"]] == [chosen["prototype_id"] for chosen in one["choices"]]
        assert [chosen["reason"] for chosen in answer["selected"]] == [chosen["origin"] for chosen in one["choices"]]
        assert answer["coverage"] == one["coverage"] and answer["recognized"] == one["recognized"]
    assert "NotFound" in ask(fails=True, identity="nobody")
    assert "identity: expected a name" in ask(fails=True)
    assert "max_prototypes: expected at most 256, got 257" in ask(fails=True, identity="person_001", maxPrototypes=257)


def test_says_what_is_wrong_by_field(server):
    request = {"probes": [{"embedding": {"values": [1, 2, 3]}}]}
    told = grpcurl(server, "-d", json.dumps(request), server.address, "lookalike.v1.Recognition/Recognize", fails=True)
    assert "InvalidArgument" in told
    assert "probes[0].embedding: expected 128 components, got 3" in told


def test_checks_health(server):
    health = grpcurl(server, server.address, "grpc.health.v1.Health/Check")
    assert json.loads(health) == {"status": "SERVING"}


def test_tells_what_is_running(server):
    info = json.loads(grpcurl(server, server.address, "lookalike.v1.Operations/GetInfo"))
    assert info["galleries"][0]["name"] == "default"
    assert info["backendReason"] == "backend.kind is cpu"
