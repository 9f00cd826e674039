"""The playground in a real browser: click points, change beta, see the certificate change."""

from __future__ import annotations

import json
import re
import shutil
import socket
import threading
import time

import pytest

pytest.importorskip("starlette", reason="Starlette is not installed")
uvicorn = pytest.importorskip("uvicorn", reason="uvicorn is not installed")
sync_api = pytest.importorskip("playwright.sync_api", reason="Playwright (the extra [browser]) is not installed")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine"),
]

from bidual import load  # noqa: E402
from bidual.playground.app import create_app  # noqa: E402

expect = sync_api.expect
PATIENCE = 60_000


@pytest.fixture(scope="module")
def url():
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(create_app(), log_level="warning", ws="none"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.02)
    yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
    server.should_exit = True
    thread.join(10)
    listener.close()


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(browser, url):
    page = browser.new_page(viewport={"width": 1400, "height": 950})
    page.set_default_timeout(PATIENCE)
    expect.set_options(timeout=PATIENCE)
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    foreign = lambda request: not request.url.startswith((url, "data:", "blob:"))  # noqa: E731
    page.on("request", lambda request: errors.append(request.url) if foreign(request) else None)
    page.goto(url)
    expect(page.locator("#fact-objective")).to_have_text(re.compile(r"0\.\d+"))
    yield page
    page.close()
    assert errors == []


def objective(page):
    return float(page.locator("#fact-objective").inner_text())


def changes(page, action):
    """The objective after ``action``, which changes it."""
    before = page.locator("#fact-objective").inner_text()
    action()
    expect(page.locator("#fact-objective")).not_to_have_text(before)
    return objective(page)


def click(page, x, y):
    box = page.locator("#plot").bounding_box()
    page.mouse.click(box["x"] + x * box["width"], box["y"] + y * box["height"])


def test_points_beta_and_certificate(page, tmp_path):
    expect(page.locator("#badge")).to_have_text("proven")
    points = page.locator("#scene .point")
    expect(points).to_have_count(5)
    changes(page, lambda: click(page, 0.5, 0.9))
    expect(points).to_have_count(6)
    small = objective(page)
    slider = page.locator("#beta")
    large = changes(page, lambda: slider.fill("-1"))
    assert large > small
    expect(page.locator("#beta-value")).to_have_text("0.1")
    expect(page.locator("#path polyline").first).to_be_attached()
    page.screenshot(path=tmp_path / "page.png")
    assert (tmp_path / "page.png").stat().st_size > 20_000
    with page.expect_download() as download:
        page.click("#download")
    download.value.save_as(tmp_path / "m.json")
    model = load(tmp_path / "m.json")
    assert model.certificate.objective == pytest.approx(large, rel=1e-5)
    assert model.training.beta == 0.1
    page.click("#clear")
    expect(points).to_have_count(0)
    expect(page.locator("#sentence")).to_have_text("Click some points.")


def test_points_can_be_moved_and_removed(page):
    box, points = page.locator("#plot").bounding_box(), page.locator("#scene .point")
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 4  # the point (0, 1)

    def drag():
        page.mouse.move(x, y)
        page.mouse.down()
        page.mouse.move(x, y + 60, steps=4)
        page.mouse.up()

    changes(page, drag)
    expect(points).to_have_count(5)
    changes(page, lambda: page.mouse.dblclick(x, y + 60))
    expect(points).to_have_count(4)


def test_descents_run_beside_the_optimum(page):
    page.check("[name=task][value=classification]")
    expect(page.locator("#scene path.curve")).to_be_attached()
    page.click("#descend")
    expect(page.locator("#verdict")).to_contain_text("of 5 runs ended")
    expect(page.locator("#runs-list li")).to_have_count(5)
    assert page.locator("#scene path.run").count() == 5
    for item in page.locator("#runs-list li").all_inner_texts():
        assert float(item.split(",")[0]) >= 0.999 * objective(page)
    page.select_option("#architecture", "gated")
    expect(page.locator("#descend")).to_be_disabled()


def test_keyboard_alone_is_enough(page):
    for _ in range(60):  # the controls come before the plot
        page.keyboard.press("Tab")
        if page.evaluate("() => document.activeElement.id") == "plot":
            break
    assert page.evaluate("() => document.activeElement.id") == "plot"
    points = page.locator("#scene .point")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Shift+ArrowLeft")
    changes(page, lambda: page.keyboard.press("Enter"))
    expect(points).to_have_count(6)
    changes(page, lambda: page.keyboard.press("Delete"))
    expect(points).to_have_count(5)


def test_every_control_has_a_name_and_nothing_overflows(page):
    unnamed = page.evaluate(
        """() => [...document.querySelectorAll('input, select, button, [tabindex], svg[role=img]')]
        .filter(e => !(e.labels?.length || e.getAttribute('aria-label') || e.getAttribute('aria-labelledby')
                       || e.textContent.trim())).map(e => e.outerHTML)"""
    )
    assert unnamed == []
    for width in (1400, 800, 360):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out(browser, url, scheme):
    page = browser.new_page(color_scheme=scheme)
    page.goto(url)
    colours = page.evaluate(
        """() => { const s = getComputedStyle(document.documentElement), c = {};
        for (const n of ['paper', 'panel', 'ink', 'soft', 'ours', 'descent', 'bound', 'warn'])
            c[n] = s.getPropertyValue('--' + n).trim();
        return JSON.stringify(c); }"""
    )
    page.close()
    colours = json.loads(colours)

    def luminance(colour):
        channels = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    for text in ("ink", "soft", "ours", "descent", "bound", "warn"):
        for ground in ("paper", "panel"):
            low, high = sorted(luminance(colours[name]) for name in (text, ground))
            assert (high + 0.05) / (low + 0.05) > 4.5, (text, ground)


def test_a_pasted_table_a_link_that_holds_it_and_why_buttons_rest(page, browser, url):
    page.click("#own summary")
    page.fill("#table", "x;y\n0;0\n500;1\n1000;0\n1500;1")
    changes(page, lambda: page.click("#take"))
    expect(page.locator("#scene .point")).to_have_count(4)
    expect(page.locator("#message")).to_contain_text("x is shown as (x - 750)")
    page.select_option("#width", "5")
    expect(page.locator("#descend")).to_be_enabled()
    value = objective(page)
    page.wait_for_url(re.compile(r"#.*width=5&points="))
    again = browser.new_page()
    again.goto(page.url)
    expect(again.locator("#scene .point")).to_have_count(4)
    expect(again.locator("#fact-objective")).to_have_text(re.compile(r"\d"))
    assert objective(again) == pytest.approx(value, rel=1e-3)
    assert again.locator("#width").input_value() == "5"
    again.close()
    page.fill("#table", "1,2,3")
    page.click("#take")
    expect(page.locator("#message")).to_contain_text("has 3 columns")
    page.select_option("#architecture", "gated")
    expect(page.locator("#descend")).to_have_attribute("title", re.compile("convex"))
    page.click("#clear")
    expect(page.locator("#download")).to_have_attribute("title", re.compile("not enough points"))
    expect(page.locator("#undo")).to_be_disabled()
