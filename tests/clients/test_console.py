"""The console in a real browser: what it shows, that it stays current, that it reads without JavaScript and by keyboard, in light and
dark, and that it changes nothing without a token."""

import hashlib
import json
import os
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import pytest
from conftest import BINARY, ROOT, SAMPLE, lookalike, serve, stop
from playwright.sync_api import expect, sync_playwright

TOKEN = "a token of the test"
# Where somebody wants to look at the pages.
SHOTS = os.environ.get("CONSOLE_SCREENSHOTS")


@pytest.fixture(scope="module")
def console(tmp_path_factory, stubs):
    """A server whose shadow has agreed and then disagreed, as an operator might find it."""
    folder = tmp_path_factory.mktemp("console")
    library, moment = folder / "libfake.so", folder / "now"
    subprocess.run(["cc", "-std=gnu11", "-shared", "-fPIC", "-o", library, ROOT / "tests/fixtures/fake_opencl/fake.c",
                    "-Wl,--no-as-needed", "-l:libOpenCL.so.1", "-ldl", "-lm"], check=True)
    lookalike("gallery", "import", "--data", folder / "data", "--labels", SAMPLE / "gallery.csv", SAMPLE / "gallery.npy",
              "--threshold", "0.942", "--min-margin", "0.04", "--model-id", "dlib <ResNet>")
    tokens = folder / "tokens"
    tokens.write_text(f"admin {hashlib.sha256(TOKEN.encode()).hexdigest()} tester\n")
    server = serve(folder / "data", "--backend", "cpu", "--set", "shadow.enabled=true", "--set", "shadow.backend=opencl",
                   "--set", "shadow.sampling=1", "--set", "backend.opencl.allow_cpu_devices=true",
                   "--set", f"shadow.record.path={folder / 'record'}", "--set", f"server.tokens={tokens}",
                   "--set", f"backend.opencl.cache_dir={folder / 'programs'}",
                   environment={"LOOKALIKE_OPENCL_LIBRARY": str(library), "FAKE_ACTION": "scores", "FAKE_WHEN": str(moment)})
    messages, services = stubs
    probes = [json.loads(line) for line in (SAMPLE / "probes.jsonl").read_text().splitlines()]
    request = messages.RecognizeRequest(
        probes=[{"id": probe["id"], "embedding": {"values": probe["embedding"]}} for probe in probes])
    with server.channel() as channel:
        recognition = services.RecognitionStub(channel)

        def ask():
            recognition.Recognize(request)

        ask()
        wait_for(server, 'lookalike_shadow_comparisons_total{kind="agree"} 12')
        moment.touch()
        ask()
        wait_for(server, 'lookalike_shadow_comparisons_total{kind="score"} ')
        moment.unlink()
        yield server, ask
    stop(server)


def wait_for(server, series):
    """Until a series is there and is not 0."""
    for _ in range(3000):
        with urllib.request.urlopen(f"http://{server.metrics}/metrics", timeout=30) as reply:
            lines = reply.read().decode().splitlines()
        if any(line.startswith(series) and not line.endswith(" 0") for line in lines):
            return
    pytest.fail(f"no {series}")


@pytest.fixture(scope="module")
def browser():
    chromium = shutil.which("chromium")
    assert chromium, "the tests want Debian's package chromium"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        browser.close()


def opened(browser, server, **context):
    """The console on a page of its own, and what the browser complained of."""
    page = browser.new_context(**context).new_page()
    complaints = []
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(f"http://{server.metrics}/")
    return page, complaints


def shot(page, name):
    if SHOTS:
        Path(SHOTS).mkdir(parents=True, exist_ok=True)
        page.screenshot(path=str(Path(SHOTS) / f"{name}.png"), full_page=True)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_shows_the_service_and_the_rollout(console, browser, scheme):
    server, _ = console
    page, complaints = opened(browser, server, color_scheme=scheme)
    assert page.url.endswith("/console") and page.title() == "Lookalike"
    for heading in ("Service", "Galleries", "Backends and devices", "Rollout"):
        expect(page.get_by_role("region", name=heading)).to_be_visible()
    galleries = page.get_by_role("table", name="Galleries")
    expect(galleries).to_contain_text("dlib <ResNet>")
    expect(page.get_by_role("table", name="Backends", exact=True)).to_contain_text("opencl")
    expect(page.get_by_role("region", name="Rollout")).to_contain_text("shadowing: cpu")
    gate = page.get_by_role("table", name="Gate")
    expect(gate.get_by_role("row")).to_have_count(8)
    expect(gate).to_contain_text("more")
    assert page.get_by_role("img").count() == 3, "three charts, each with its numbers in words"
    # A disagreement opens by keyboard and shows both sides.
    summary = page.locator("details[id^=d-] > summary").last
    summary.focus()
    page.keyboard.press("Enter")
    side = page.get_by_role("table", name="shadow: opencl").last
    expect(side).to_be_visible()
    expect(side).to_contain_text("person_")
    back, ink = page.evaluate("[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]")
    assert sum(channels(back)) > sum(channels(ink)) if scheme == "light" else sum(channels(back)) < sum(channels(ink))
    assert contrast(back, ink) > 7
    shot(page, scheme)
    assert complaints == []


def channels(colour):
    return [int(part) for part in colour[colour.index("(") + 1:-1].split(",")[:3]]


def contrast(one, other):
    """As WCAG 2 has it."""
    def luminance(colour):
        parts = [channel / 255 for channel in channels(colour)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def test_it_keeps_itself_current_and_pauses(console, browser):
    server, ask = console
    page, complaints = opened(browser, server)
    answered = page.get_by_role("region", name="Service").get_by_text("answered")
    before = answered.inner_text()
    ask()
    expect(answered).not_to_have_text(before, timeout=15_000)
    pause = page.get_by_role("button", name="Pause updates")
    pause.press("Space")
    resume = page.get_by_role("button", name="Resume updates")
    expect(resume).to_have_attribute("aria-pressed", "true")
    assert complaints == []


def test_it_reads_without_javascript_and_on_a_phone(console, browser):
    server, _ = console
    page, _ = opened(browser, server, java_script_enabled=False, viewport={"width": 360, "height": 740})
    expect(page.get_by_role("table", name="Comparisons")).to_contain_text("agree")
    expect(page.get_by_role("button", name="Pause updates")).to_be_hidden()
    shot(page, "phone")


def test_it_does_not_scroll_sideways_on_a_phone(console, browser):
    server, _ = console
    page, _ = opened(browser, server, viewport={"width": 360, "height": 740})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_only_a_token_changes_anything(console, browser):
    server, _ = console
    page, _ = opened(browser, server)
    page.get_by_text("Change", exact=True).click()
    form = page.locator("form[action='/console/sampling']")
    form.get_by_label("sampling").fill("12.5")
    form.get_by_label("token").fill("a guess")
    form.get_by_role("button", name="Set").click()
    expect(page.locator("body")).to_contain_text("expected an admin's token")
    page.go_back()
    page.get_by_text("Change", exact=True).click()
    form.get_by_label("sampling").fill("12.5")
    form.get_by_label("token").fill(TOKEN)
    form.get_by_role("button", name="Set").click()
    expect(page.get_by_role("region", name="Rollout")).to_contain_text("on 12.5 % of requests")
    told = subprocess.run([BINARY, "shadow", "report", "--server", server.address, "--format", "json"], capture_output=True, text=True)
    assert json.loads(told.stdout)["sampling"] == 0.125
    # What the gate refuses it refuses here too.
    body = urllib.parse.urlencode({"token": TOKEN}).encode()
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"http://{server.metrics}/console/promote", data=body, timeout=30)
    assert (refused.value.code, refused.value.read()) == (409, b"the gate is not met\n")


def test_nothing_comes_from_elsewhere(console):
    server, _ = console
    with urllib.request.urlopen(f"http://{server.metrics}/console", timeout=30) as reply:
        text = reply.read().decode()
        policy = reply.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy
    assert "http://" not in text and "https://" not in text and "<ResNet>" not in text
