"""The page in a browser: a shift turns it to alarm; texts of clients stay texts."""

from __future__ import annotations

import shutil

import pytest
from light_task import samples
from live_service import png, running

from unseen.deploy.service.settings import Watching

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no chromium here: apt-get install chromium"
)
TOKEN = "a-token"
HOSTILE = "<img src=x onerror=document.title='owned'>"
SLOW = 120_000  # milliseconds; the machine may be busy


@pytest.fixture(scope="module")
def page():
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.set_default_timeout(SLOW)
        yield page
        browser.close()


@pytest.fixture(scope="module")
def client(light_run, own_export, tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    paths = [folder / "light.onnx", folder / "own.onnx"]
    for path, made in zip(paths, (light_run, own_export), strict=True):
        path.write_bytes(made.exported.read_bytes())
    with running(paths, token=TOKEN, watching=Watching(window=20)) as client:
        yield client


def test_shift_turns_the_page_to_alarm(client, page):
    said, asked = [], []
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(client.url)
    page.fill("#token", "wrong")
    page.click("#token-form button")
    page.wait_for_selector("#token-problem:not(:empty)")
    page.fill("#token", TOKEN)
    page.click("#token-form button")
    page.wait_for_selector("#content:not([hidden])")
    assert page.get_attribute("body", "data-state") == "waiting"
    client.arrays(samples("test").tensors[0].numpy()[:40], domain="camera")
    page.wait_for_selector("body[data-state=ok]")
    assert page.inner_text("#headline") == "camera looks like the source"
    client.arrays(samples("test", 3.0).tensors[0].numpy()[:20], domain="camera")
    page.wait_for_selector("body[data-state=alarm]")
    assert page.inner_text("#headline") == "Alarm: camera" and "Alarm" in page.title()
    assert page.locator("#score-chart circle.alarm").count() == 1
    assert page.locator("#score-chart path.limit").count() == 1
    assert page.locator("#accuracy-chart path.band").count() == 1
    assert page.locator("#alarms li").count() == 1
    client.arrays(samples("test", 3.0).tensors[0].numpy()[20:60], domain="camera")
    page.wait_for_selector("#alarms li:has-text('3 windows in a row')")
    assert page.locator("#alarms li").count() == 1
    client.arrays(samples("test").tensors[0].numpy()[:5], domain="gathers")
    page.wait_for_selector("#domains tr:has-text('gathering')")
    assert page.inner_text("#selected") == "camera"  # not the one without a reading
    assert said == [] and all(url.startswith(client.url) for url in asked if url[:5] != "data:")


def test_texts_of_clients_are_shown_as_texts(client, page):
    headers = {"Content-Type": "image/png", "domain": HOSTILE}
    answer = client.post("/predict", params={"run": "own"}, data=png(), headers=headers)
    assert answer.status_code == 200
    page.click("#runs button:has-text('own')")
    page.wait_for_selector("#recent img")
    assert page.inner_text("#domains th button") == HOSTILE
    decoded = "() => [...document.images].every((i) => i.complete && i.naturalWidth > 0)"
    for _ in range(100):  # the page's policy forbids what wait_for_function does
        if page.evaluate(decoded):
            break
        page.wait_for_timeout(100)
    assert page.evaluate(decoded)
    assert page.title() == "own – unseen" and page.locator("#domains img").count() == 0


@pytest.mark.parametrize("width", [360, 1280])
def test_page_fits_and_follows_the_theme(client, page, width):
    page.set_viewport_size({"width": width, "height": 800})
    page.emulate_media(color_scheme="dark")
    ground = "() => getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(ground) == "rgb(18, 23, 29)"
    page.emulate_media(color_scheme="light")
    assert page.evaluate(ground) == "rgb(251, 250, 247)"
    assert page.evaluate("() => document.documentElement.scrollWidth") <= width
