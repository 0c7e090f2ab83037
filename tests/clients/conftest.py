"""A running server for clients to talk to, and the stubs that a Python client would generate."""

import json
import os
import subprocess
import sys
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

ROOT = Path(__file__).resolve().parents[2]
BINARY = Path(os.environ.get("LOOKALIKE_BINARY", ROOT / "target/debug/lookalike")).resolve()
GRPCURL = ROOT / ".tools/grpcurl"
PROMETHEUS = ROOT / ".tools/prometheus/usr/bin"
SAMPLE = ROOT / "sample"
FACES = ROOT.parent / "shared/data/faces"


def lookalike(*arguments, code=0):
    """Runs the program, which must end with this code, and returns what it printed; of a run that fails also what it said."""
    done = subprocess.run([BINARY, *map(str, arguments)], capture_output=True, text=True, timeout=300)
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stdout + done.stderr


@dataclass
class Server:
    process: subprocess.Popen
    address: str
    metrics: str

    def channel(self):
        return grpc.insecure_channel(self.address, options=[("grpc.max_receive_message_length", -1)])


def serve(data, *arguments, environment=None):
    """Starts `lookalike serve` on free ports and waits until it says that it serves."""
    command = [BINARY, "serve", "--data", data, "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0",
               "--set", "log.format=json", *arguments]
    process = subprocess.Popen(list(map(str, command)), stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                               env={**os.environ, **(environment or {})})
    told = []
    for line in process.stderr:
        told.append(line)
        event = json.loads(line) if line.startswith("{") else {}
        if event.get("message") == "listening":
            break
    else:
        pytest.fail(f"the server ended: {''.join(told)}")
    # What else the server logs goes on to ours, so that its pipe never fills.
    subprocess.Popen([sys.executable, "-c", "import sys; [sys.stderr.write(l) for l in sys.stdin]"],
                     stdin=process.stderr)
    server = Server(process, event["grpc"], event["metrics"])
    with server.channel() as channel:
        for health in health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(), timeout=60):
            if health.status == health_pb2.HealthCheckResponse.SERVING:
                break
        else:
            pytest.fail("the server stopped before it served")
    # It serves before its shadow's backend is open.
    if "shadow.enabled=true" in arguments:
        wait_for(server, "lookalike_shadow_open 1")
    return server


def wait_for(server, series):
    """Until a series is there and is not 0."""
    for _ in range(3000):
        with urllib.request.urlopen(f"http://{server.metrics}/metrics", timeout=30) as reply:
            lines = reply.read().decode().splitlines()
        if any(line.startswith(series) and not line.endswith(" 0") for line in lines):
            return
    pytest.fail(f"no {series}")


def stop(server):
    server.process.terminate()
    assert server.process.wait(timeout=30) == 0
    assert server.process.stdout.read() == "", "a server prints nothing on stdout"


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    """Serves the sample gallery."""
    data = tmp_path_factory.mktemp("sample") / "data"
    lookalike("gallery", "import", "--data", data, "--labels", SAMPLE / "gallery.csv", SAMPLE / "gallery.npy",
              "--threshold", "0.942", "--min-margin", "0.04", "--model-id", "dlib")
    server = serve(data, "--backend", "cpu")
    yield server
    stop(server)


@pytest.fixture(scope="session")
def stubs(tmp_path_factory):
    """(messages, stubs) of lookalike.v1's Recognition, generated as a user would."""
    from grpc_tools import protoc

    out = tmp_path_factory.mktemp("stubs")
    proto = ROOT / "proto"
    files = [str(path) for path in sorted((proto / "lookalike/v1").glob("*.proto"))]
    assert protoc.main(["protoc", f"-I{proto}", f"--python_out={out}", f"--grpc_python_out={out}", *files]) == 0
    sys.path.insert(0, str(out))
    from lookalike.v1 import recognition_pb2, recognition_pb2_grpc

    return recognition_pb2, recognition_pb2_grpc
