"""deploy/: the rules are what promtool takes, every query of rules and dashboard names what a running server exposes, and a real
Prometheus fires the alert for a planted disagreement."""

import json
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

import pytest
from conftest import BINARY, PROMETHEUS, ROOT, SAMPLE, lookalike, serve, stop

DEPLOY = ROOT / "deploy"
RULES = DEPLOY / "prometheus"
METRIC = re.compile(r"\blookalike_[a-z_]+")
POCL = ["--backend", "cpu", "--set", "shadow.enabled=true", "--set", "shadow.backend=opencl", "--set", "shadow.sampling=1",
        "--set", "backend.opencl.allow_cpu_devices=true"]

sys.path.insert(0, str(DEPLOY / "grafana"))
import make  # noqa: E402


def promtool(*arguments, cwd=RULES):
    done = subprocess.run([PROMETHEUS / "promtool", *arguments], cwd=cwd, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_rules_are_rules_and_fire_on_what_they_are_for():
    assert "SUCCESS" in promtool("check", "rules", "alerts.yml")
    promtool("check", "config", "prometheus.yml")
    assert "SUCCESS" in promtool("test", "rules", "alerts_test.yml")


def recipe():
    """The README's queries that say whether anything is wrong."""
    [block] = re.findall(r"```promql\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    return block.splitlines()[:-1]


def test_the_readmes_recipe_is_prometheus_language(tmp_path):
    rules = [{"record": f"readme:query:{place}", "expr": query} for place, query in enumerate(recipe())]
    (tmp_path / "recipe.json").write_text(json.dumps({"groups": [{"name": "readme", "rules": rules}]}))
    assert f"{len(rules)} rules found" in promtool("check", "rules", tmp_path / "recipe.json") and len(rules) == 6


def test_every_alert_is_explained_and_tested():
    alerts = re.findall(r"- alert: (\w+)", (RULES / "alerts.yml").read_text())
    guide, tests = (DEPLOY / "ROLLOUT.md").read_text(), (RULES / "alerts_test.yml").read_text()
    assert len(alerts) == len(set(alerts)) >= 13
    for alert in alerts:
        assert f"| `{alert}` |" in guide, alert
        assert f"alertname: {alert}" in tests and f'alertname="{alert}"' in tests, alert


def test_the_dashboard_is_what_its_table_says():
    assert json.loads((DEPLOY / "grafana/dashboard.json").read_text()) == make.dashboard()


@pytest.fixture(scope="module")
def shadowed(tmp_path_factory):
    """A server with a shadow on PoCL whose driver can be told to compute wrongly, and the file that tells it."""
    folder = tmp_path_factory.mktemp("shadowed")
    library, moment = folder / "libfake.so", folder / "now"
    source = ROOT / "tests/fixtures/fake_opencl/fake.c"
    subprocess.run(["cc", "-std=gnu11", "-shared", "-fPIC", "-o", library, source, "-Wl,--no-as-needed", "-l:libOpenCL.so.1",
                    "-ldl", "-lm"], check=True)
    lookalike("gallery", "import", "--data", folder / "data", "--labels", SAMPLE / "gallery.csv", SAMPLE / "gallery.npy",
              "--threshold", "0.942", "--min-margin", "0.04")
    environment = {"LOOKALIKE_OPENCL_LIBRARY": str(library), "FAKE_ACTION": "scores", "FAKE_WHEN": str(moment)}
    server = serve(folder / "data", *POCL, "--set", f"shadow.record.path={folder / 'record'}",
                   "--set", f"backend.opencl.cache_dir={folder / 'programs'}", environment=environment)
    yield server, moment
    stop(server)


def exposed(server):
    with urllib.request.urlopen(f"http://{server.metrics}/metrics", timeout=30) as reply:
        return set(METRIC.findall(reply.read().decode()))


def test_every_query_names_a_metric_that_a_server_exposes(shadowed):
    server, _ = shadowed
    names = exposed(server)
    dashboard = json.loads((DEPLOY / "grafana/dashboard.json").read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    assert len(queries) > 20
    queries += recipe()
    rules = [line for line in (RULES / "alerts.yml").read_text().splitlines() if not line.lstrip().startswith("#")]
    named = {name for query in queries + rules for name in METRIC.findall(query)}
    # Histograms are declared by their base, and exposed by these parts.
    assert len(named) > 20 and named - names == set()


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def ask(port, path, **query):
    url = f"http://127.0.0.1:{port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
    with urllib.request.urlopen(url, timeout=10) as reply:
        return json.load(reply)["data"]


def until(what, condition, seconds=90):
    """What `condition` gives, once it gives something."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if found := condition():
                return found
        except urllib.error.URLError:
            pass  # It does not listen yet.
        time.sleep(0.1)
    pytest.fail(f"{what}: not within {seconds} s")


def every_panel_shows_something(port):
    """Every query of the dashboard is one, has a result, and its results have the labels that its legend names."""
    for _, title, _, queries in make.PANELS:
        for legend, query in queries:
            result = ask(port, "query", query=query.replace("$__rate_interval", "1m"))["result"]
            assert result, (title, query)
            for label in re.findall(r"{{(\w+)}}", legend):
                assert all(label in series["metric"] for series in result), (title, label, query)


def test_a_real_prometheus_fires_the_alert_for_a_planted_disagreement(shadowed, stubs, tmp_path):
    server, moment = shadowed
    configuration = (RULES / "prometheus.yml").read_text()
    for setting in ("scrape_interval", "evaluation_interval"):
        configuration = configuration.replace(f"{setting}: 15s", f"{setting}: 1s")
    configuration = configuration.replace("127.0.0.1:9464", server.metrics)
    (tmp_path / "prometheus.yml").write_text(configuration)
    (tmp_path / "alerts.yml").write_text((RULES / "alerts.yml").read_text())
    port = free_port()
    with open(tmp_path / "log", "w") as log:
        prometheus = subprocess.Popen(
            [PROMETHEUS / "prometheus", f"--config.file={tmp_path / 'prometheus.yml'}", f"--storage.tsdb.path={tmp_path / 'db'}",
             f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log)
    try:
        until("it is scraped", lambda: ask(port, "query", query='up{job="lookalike"} == 1')["result"])
        messages, services = stubs
        probes = [json.loads(line) for line in (SAMPLE / "probes.jsonl").read_text().splitlines()]
        request = messages.RecognizeRequest(
            probes=[{"id": probe["id"], "embedding": {"values": probe["embedding"]}} for probe in probes])

        def compared(kind, least):
            query = f'sum(lookalike_shadow_comparisons_total{{kind="{kind}"}}) >= {least}'
            return lambda: ask(port, "query", query=query)["result"]

        def firing():
            alerts = ask(port, "alerts")["alerts"]
            return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}

        with server.channel() as channel:
            recognition = services.RecognitionStub(channel)
            sound = recognition.Recognize(request).recognitions
            until("it agrees", compared("agree", len(probes)))
            assert not firing() & {"LookalikeShadowDisagreement", "LookalikeShadowHardDisagreement"}
            moment.touch()
            assert recognition.Recognize(request).recognitions == sound, "callers see nothing of it"
        until("the disagreement is scraped", compared("score", 1))
        until("the alert fires", lambda: "LookalikeShadowDisagreement" in firing())
        every_panel_shows_something(port)
        moment.unlink()
        told = subprocess.run([BINARY, "shadow", "list", "--server", server.address, "--kind", "score", "--format", "json"],
                              capture_output=True, text=True, check=True).stdout
        found = json.loads(told)["disagreements"]
        assert found and found[0]["shadow"]["wrongScores"] and not found[0]["primary"]["wrongScores"]
        replayed = subprocess.run([BINARY, "shadow", "replay", found[0]["id"], "--server", server.address],
                                  capture_output=True, text=True)
        assert replayed.returncode == 3 and "guilty: shadow" in replayed.stdout, replayed.stdout + replayed.stderr
    finally:
        prometheus.terminate()
        prometheus.wait(timeout=30)
