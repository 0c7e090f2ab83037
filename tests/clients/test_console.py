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
from conftest import BINARY, ROOT, SAMPLE, lookalike, serve, stop, wait_for
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


def sampling(server):
    told = subprocess.run([BINARY, "shadow", "report", "--server", server.address, "--format", "json"], capture_output=True, text=True)
    return json.loads(told.stdout)["sampling"]


def fill(page, percent, token):
    """Fills the form for the sampling and sends it."""
    form = page.locator("form[action='/console/sampling']")
    if not form.is_visible():
        page.get_by_text("Change", exact=True).click()
    form.get_by_label("sampling").fill(percent)
    form.get_by_label("token").fill(token)
    form.get_by_role("button", name="Set").click()
    return form


def test_only_a_token_changes_anything(console, browser):
    server, _ = console
    page, complaints = opened(browser, server)
    refused = fill(page, "12.5", "a guess").get_by_role("alert")
    expect(refused).to_contain_text("token: expected an admin's token")
    assert page.url.endswith("/console"), "what was typed is still there"
    expect(page.get_by_label("sampling")).to_have_value("12.5")
    shot(page, "refused-live")
    fill(page, "12.5", TOKEN)
    expect(page.get_by_role("region", name="Rollout")).to_contain_text("on 12.5 % of requests")
    expect(page.locator("#state")).to_have_text("Done.")
    expect(page.locator("#change > summary")).to_be_focused()
    assert sampling(server) == 0.125
    assert [text for text in complaints if "403" not in text] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_without_javascript_a_refusal_is_a_page(console, browser, scheme):
    server, _ = console
    page, _ = opened(browser, server, java_script_enabled=False, color_scheme=scheme)
    fill(page, "25", "a guess")
    expect(page.get_by_role("region", name="Nothing was changed")).to_contain_text("token: expected an admin's token")
    shot(page, f"refused-{scheme}")
    page.get_by_role("link", name="Back to the console").click()
    fill(page, "25", TOKEN)
    expect(page.get_by_role("region", name="Rollout")).to_contain_text("on 25 % of requests")
    assert sampling(server) == 0.25


def sent(server, what, kind="application/x-www-form-urlencoded", **fields):
    """The status that a form gets, and the page."""
    body = fields.pop("body", None)
    body = urllib.parse.urlencode(fields).encode() if body is None else body
    request = urllib.request.Request(f"http://{server.metrics}/console/{what}", data=body, headers={"content-type": kind})
    try:
        with urllib.request.urlopen(request, timeout=30) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as refused:
        assert refused.headers["content-type"] == "text/html; charset=utf-8"
        assert "default-src 'none'" in refused.headers["content-security-policy"]
        return refused.code, refused.read().decode()


def test_each_refusal_has_its_status_and_says_what_is_right(console):
    server, _ = console
    before = sampling(server)
    for percent in ("101", "-1", "nan", "many", "", " "):
        status, page = sent(server, "sampling", token=TOKEN, percent=percent)
        assert status == 422 and "percent: expected a number from 0 to 100, such as 12.5, got" in page, (percent, status, page)
    status, page = sent(server, "sampling", token=TOKEN, percent="<b>" * 100)
    assert status == 422 and "<b>" not in page and "&lt;b&gt;" in page and len(page) < 2000
    status, page = sent(server, "sampling", token=TOKEN)
    assert status == 422 and "got nothing" in page
    status, page = sent(server, "demote", token=TOKEN, reason="x" * 1025)
    assert status == 422 and "reason: expected at most 1024 bytes, got 1025 bytes" in page
    for fields, got in (({"percent": "5"}, "none"), ({"percent": "5", "token": ""}, "none"), ({"percent": "5", "token": "wrong"}, "one that it does not name")):
        status, page = sent(server, "sampling", **fields)
        assert status == 403 and f"got {got}" in page and "server.tokens" in page, (fields, status, page)
    status, page = sent(server, "sampling", kind="application/json", body=b"{}")
    assert status == 415 and "application/x-www-form-urlencoded" in page
    status, page = sent(server, "sampling", body=b"x" * 3_000_000)
    assert status == 413 and "expected a form" in page
    # What the gate refuses it refuses here too, and says what is missing.
    status, page = sent(server, "promote", token=TOKEN)
    assert status == 409 and "The gate is not met" in page and "comparisons: limit 100000, got " in page
    # Who comes without a form is shown the page that has it.
    with urllib.request.urlopen(f"http://{server.metrics}/console/sampling", timeout=30) as reply:
        assert reply.url.endswith("/console")
    with pytest.raises(urllib.error.HTTPError) as missing:
        urllib.request.urlopen(f"http://{server.metrics}/no-such-page", timeout=30)
    page = missing.value.read().decode()
    assert missing.value.code == 404 and "/console" in page
    assert sampling(server) == before, "none of it changed anything"


def test_it_says_how_shadow_mode_is_turned_on(server, browser):
    page, complaints = opened(browser, server)
    expect(page.get_by_role("region", name="Rollout")).to_contain_text("Shadow mode is off: to compare a second backend set shadow.enabled: true")
    shot(page, "off")
    status, text = sent(server, "sampling", token=TOKEN, percent="5")
    assert status == 409 and "set shadow.enabled: true" in text
    assert complaints == []


def test_a_narrow_window_and_large_letters_lose_nothing(console, browser):
    server, _ = console
    page, _ = opened(browser, server, viewport={"width": 360, "height": 740})
    for summary in page.locator("details > summary").all():
        summary.click()
    page.evaluate("document.documentElement.style.fontSize = '200%'")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    shot(page, "narrow-large")


def test_nothing_comes_from_elsewhere(console):
    server, _ = console
    with urllib.request.urlopen(f"http://{server.metrics}/console", timeout=30) as reply:
        text = reply.read().decode()
        policy = reply.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy
    assert "http://" not in text and "https://" not in text and "<ResNet>" not in text
