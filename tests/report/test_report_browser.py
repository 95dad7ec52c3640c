"""The report in a browser: errors, requests, images, sorting, accessibility."""

from __future__ import annotations

import itertools
import shutil

import pytest

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no chromium here: apt-get install chromium"
)

# The contrast of every visible text with what is painted behind it, WCAG 2; SVG text has its fill.
CONTRASTS = """() => {
  const rgb = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
    .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = rgb(getComputedStyle(at).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  const found = [];
  for (const element of document.body.querySelectorAll("*")) {
    const text = [...element.childNodes]
      .filter((n) => n.nodeType === 3 && n.textContent.trim()).length;
    if (!text || ["SCRIPT", "STYLE"].includes(element.tagName)) continue;
    const style = getComputedStyle(element);
    const colour = rgb(element instanceof SVGElement ? style.fill : style.color);
    const [a, b] = [light(colour), light(behind(element))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    found.push([ratio, element.tagName + ": " + element.textContent.trim().slice(0, 40)]);
  }
  return found.sort((x, y) => x[0] - y[0]);
}"""


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(params=["light", "dark"])
def theme(request):
    return request.param


def opened(browser, folder, theme="light", width=1280):
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=theme)
    page = context.new_page()
    page.said, page.asked = [], []
    page.on("console", lambda message: page.said.append(message.text))
    page.on("pageerror", lambda error: page.said.append(str(error)))
    page.on("request", lambda request: page.asked.append(request.url))
    page.goto((folder / "report.html").as_uri())
    return page


def test_page_loads_without_errors_or_requests_and_images_decode(browser, report_folder):
    page = opened(browser, report_folder)
    images = page.evaluate(
        "() => [...document.images].map((i) => [i.alt, i.complete && i.naturalWidth > 0])"
    )
    assert len(images) > 30 and all(alt and decoded for alt, decoded in images)
    assert page.said == []
    assert [url for url in page.asked if not url.startswith("data:")] == [page.url]
    sizes = page.evaluate(
        "() => [...document.querySelectorAll('.panel svg')]"
        ".map((s) => s.getBoundingClientRect().height)"
    )
    assert len(sizes) > 30 and min(sizes) > 40


def test_tables_sort_by_click_and_key(browser, report_folder):
    page = opened(browser, report_folder)
    table = page.locator(
        "table", has=page.locator("caption", has_text="digits: Results: accuracy, %")
    )
    head = table.locator("thead th", has_text="average, unseen")
    column = head.evaluate("(th) => th.cellIndex")
    cells = f"tbody tr > :nth-child({column + 1})"

    def shown():
        return [
            float(text.split("±")[0].split()[0]) for text in table.locator(cells).all_inner_texts()
        ]

    before = shown()
    assert head.get_attribute("aria-sort") == "none" and before != sorted(before)
    head.locator("button").click()
    assert head.get_attribute("aria-sort") == "ascending" and shown() == sorted(before)
    head.locator("button").press("Enter")
    assert head.get_attribute("aria-sort") == "descending" and shown() == sorted(
        before, reverse=True
    )
    other = table.locator("thead th", has_text="method")
    other.locator("button").click()
    assert (
        head.get_attribute("aria-sort") == "none"
        and table.locator("tbody th").first.inner_text() == "erm"
    )


def test_page_has_headings_labels_and_scopes_for_screen_readers(browser, report_folder):
    page = opened(browser, report_folder)
    levels = page.evaluate(
        "() => [...document.querySelectorAll('h1,h2,h3,h4,h5,h6')].map((h) => Number(h.tagName[1]))"
    )
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(later <= earlier + 1 for earlier, later in itertools.pairwise(levels))
    assert page.evaluate("() => document.documentElement.lang") == "en"
    assert page.locator("svg:not([role=img][aria-label])").count() == 0
    assert page.locator("th:not([scope])").count() == 0
    assert page.locator("table:not(.pictures):not(:has(caption))").count() == 0
    assert page.locator("main").count() == page.locator("nav[aria-label]").count() == 1
    assert page.locator("figure:not(:has(figcaption))").count() == 0
    empty = page.evaluate(
        "() => [...document.querySelectorAll('button, a, summary')]"
        ".filter((e) => !e.innerText.trim()).length"
    )
    assert empty == 0


def test_keyboard_focus_is_visible(browser, report_folder):
    page = opened(browser, report_folder)
    page.keyboard.press("Tab")
    assert page.evaluate("() => document.activeElement.className") == "skip"
    page.keyboard.press("Tab")
    focused = page.evaluate(
        "() => [document.activeElement.id, getComputedStyle(document.activeElement).outlineStyle]"
    )
    assert focused == ["theme", "solid"]


def test_text_contrast_is_sufficient(browser, report_folder, theme):
    found = opened(browser, report_folder, theme).evaluate(CONTRASTS)
    assert len(found) > 500
    assert found[0][0] >= 4.5, found[:5]


def test_confusion_matrix_contrast_is_sufficient(browser, report_folder, theme):
    """Blend the half-transparent cell by hand: the browser does not tell what is behind a text."""
    page = opened(browser, report_folder, theme)
    ink, cell, card, opacity = page.evaluate("""() => {
      const rgb = (text) => text.match(/[\\d.]+/g).map(Number).slice(0, 3);
      const rects = [...document.querySelectorAll(".matrix rect")];
      const most = Math.max(...rects.map((r) => Number(r.getAttribute("fill-opacity"))));
      const style = (selector) => getComputedStyle(document.querySelector(selector));
      const ground = rgb(style(".block").backgroundColor);
      return [rgb(style(".matrix text").fill), rgb(style(".matrix rect").fill), ground, most];
    }""")

    def light(colour):
        parts = [
            v / 255 / 12.92 if v / 255 <= 0.04045 else ((v / 255 + 0.055) / 1.055) ** 2.4
            for v in colour
        ]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    ground = [
        0.5 * a + 0.5 * b for a, b in zip(cell, card, strict=True)
    ]  # 0.5 is the most there can be
    a, b = sorted((light(ink), light(ground)))
    assert 0.3 < opacity <= 0.5 and (b + 0.05) / (a + 0.05) >= 4.5


def test_theme_follows_system_and_button(browser, report_folder, theme):
    page = opened(browser, report_folder, theme)

    def dark():
        return (
            page.evaluate("() => getComputedStyle(document.body).backgroundColor")
            == "rgb(18, 23, 29)"
        )

    assert (
        dark()
        == (theme == "dark")
        == (page.locator("#theme").get_attribute("aria-pressed") == "true")
    )
    page.locator("#theme").click()
    assert (
        dark() != (theme == "dark")
        and (page.locator("#theme").get_attribute("aria-pressed") == "true") == dark()
    )


@pytest.mark.parametrize("width", [320, 390, 1280])
def test_page_fits_the_screen_width(browser, report_folder, width):
    page = opened(browser, report_folder, width=width)
    assert page.evaluate("() => document.documentElement.scrollWidth") <= width
    small = page.evaluate("""() => [...document.querySelectorAll('.panel svg:not(.matrix) text')]
      .map((t) => parseFloat(getComputedStyle(t).fontSize) * t.getCTM().a)
      .filter((size) => size > 0 && size < 9).length""")
    assert small == 0 or width < 390
