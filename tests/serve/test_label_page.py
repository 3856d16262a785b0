"""The page of labelling in a real browser, where Chromium is installed."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import expect, sync_playwright

from mgcap.errors import DataError
from mgcap.labelling.live import Live
from mgcap.labelling.project import Project
from mgcap.labelling.store import Cell
from mgcap.serve.connections import Server, server_config
from mgcap.serve.labelling import create_label_app
from mgcap.serve.settings import Settings
from tests.labelling.projects import COLUMNS, ROWS, kinds, make_project

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed, so the page is not tried out")
TOKEN = "anna-anna-anna"


def _no_model() -> Any:
    raise DataError("there is no model here")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return make_project(tmp_path)


@contextmanager
def _served(project: Project, port: int = 0) -> Iterator[int]:
    """The port at which a project is served until the block ends."""
    app = create_label_app(Live(project, _no_model), "nobody", Settings(people={TOKEN: "anna"}))
    server = Server(server_config(app, "127.0.0.1", port, 5, lambda: None))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    yield int(server.servers[0].sockets[0].getsockname()[1])
    server.should_exit = True
    thread.join(20)


@pytest.fixture
def url(project: Project) -> Iterator[str]:
    with _served(project) as port:
        yield f"http://127.0.0.1:{port}"


class Opened:
    """The page, and what it complained of."""

    def __init__(self, page: Any, url: str) -> None:
        self.page = page
        self.complaints: list[str] = []
        page.on("console", lambda message: self._complain(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: self._complain(str(error)))
        page.on("request", lambda request: self._check(request.url, url))
        page.goto(f"{url}/#token={TOKEN}")
        page.wait_for_selector("#class-1")
        expect(page.locator("#map canvas").first).to_be_visible()

    def _complain(self, text: str) -> None:
        self.complaints.append(text)

    def _check(self, address: str, url: str) -> None:
        if not address.startswith((url, "data:", "blob:")):
            self.complaints.append(address)

    def at(self, row: float, col: float) -> tuple[float, float]:
        """The middle of a cell on the screen: the whole raster is shown in the middle of the map."""
        box = self.page.locator("#map").bounding_box()
        scale = 2 ** np.floor(np.log2(min(box["width"] / (10 * COLUMNS), box["height"] / (10 * ROWS))))
        x = box["x"] + box["width"] / 2 + (10 * (col + 0.5) - 5 * COLUMNS) * scale
        y = box["y"] + box["height"] / 2 + (10 * (row + 0.5) - 5 * ROWS) * scale
        return float(x), float(y)

    def click(self, row: int, col: int) -> None:
        self.page.mouse.click(*self.at(row, col))

    def drag(self, first: tuple[int, int], last: tuple[int, int]) -> None:
        self.page.mouse.move(*self.at(*first))
        self.page.mouse.down()
        self.page.mouse.move(*self.at(*last), steps=6)
        self.page.mouse.up()


@pytest.fixture
def opened(url: str) -> Iterator[Opened]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        found = Opened(browser.new_page(viewport={"width": 1300, "height": 850}, reduced_motion="reduce"), url)
        yield found
        assert found.complaints == []
        browser.close()


def _until(what: Callable[[], Any], wanted: Any = True) -> None:
    for _ in range(500):
        if what() == wanted:
            return
        time.sleep(0.02)
    raise AssertionError(f"{what()} instead of {wanted}")


def _labels(project: Project) -> dict[tuple[int, int], int]:
    return {(own.row, own.col): number for own, number in project.labels()[0].items()}


def test_a_click_labels_a_cell_and_undo_takes_it_back(opened: Opened, project: Project) -> None:
    page = opened.page
    opened.click(3, 4)
    _until(lambda: _labels(project), {(3, 4): 1})
    expect(page.locator("#status")).to_have_text("1 label saved: wood")
    page.keyboard.press("2")
    opened.click(3, 12)
    _until(lambda: _labels(project), {(3, 4): 1, (3, 12): 2})
    expect(page.locator("#class-2 .count")).to_contain_text("1")
    page.keyboard.press("Control+z")
    _until(lambda: _labels(project), {(3, 4): 1})
    page.keyboard.press("Control+Shift+z")
    _until(lambda: _labels(project), {(3, 4): 1, (3, 12): 2})
    page.click("#undo")
    page.click("#undo")
    _until(lambda: _labels(project), {})
    expect(page.locator("#undo")).to_be_disabled()
    page.keyboard.press("1")
    opened.click(3, 4)
    page.keyboard.press("0")
    opened.click(3, 4)
    _until(lambda: project.store.version(), 8)
    assert _labels(project) == {}


def test_rectangles_and_strokes_label_many_cells_as_one_step(opened: Opened, project: Project) -> None:
    page = opened.page
    page.keyboard.press("r")
    opened.drag((2, 2), (4, 5))
    _until(lambda: set(_labels(project)), {(row, col) for row in (2, 3, 4) for col in (2, 3, 4, 5)})
    page.click("[data-tool=brush]")
    page.keyboard.press("3")
    opened.drag((8, 16), (8, 22))
    _until(lambda: len(_labels(project)), 12 + 7)
    assert {col for (row, col), number in _labels(project).items() if number == 3 and row == 8} == set(range(16, 23))
    page.keyboard.press("Control+z")
    _until(lambda: len(_labels(project)), 12)
    page.keyboard.press("p")
    before = page.evaluate("document.querySelector('.leaflet-map-pane').style.transform")
    opened.drag((10, 10), (12, 14))  # pans, and labels nothing
    assert page.evaluate("document.querySelector('.leaflet-map-pane').style.transform") != before
    assert len(_labels(project)) == 12


def _painted(page: Any) -> set[str]:
    """Colours of the layer over the image."""
    script = """() => { const found = new Set();
      for (const canvas of document.querySelectorAll('.leaflet-tile-pane .leaflet-layer:nth-child(2) canvas')) {
        const pixels = canvas.getContext('2d').getImageData(0, 0, 256, 256).data;
        for (let i = 0; i < pixels.length; i += 4 * 97) if (pixels[i + 3] === 255)
          found.add('#' + [0, 1, 2].map((k) => pixels[i + k].toString(16).padStart(2, '0')).join(''));
      } return [...found]; }"""
    return set(page.evaluate(script))


def test_the_map_follows_the_labels_and_says_how_right_it_is(opened: Opened, project: Project) -> None:
    page = opened.page
    assert _painted(page) == set()
    for kind in range(3):
        page.keyboard.press(str(kind + 1))
        for row, col in np.argwhere(kinds() == kind)[30::17].tolist():
            opened.click(row, col)
    colours = {own.colour for own in project.classes}
    _until(lambda: _painted(page), colours)
    expect(page.locator("#accuracy .big")).to_contain_text("%", timeout=20_000)
    expect(page.locator("#accuracy")).to_contain_text("random split")
    expect(page.locator("#curve svg")).to_be_visible(timeout=20_000)
    page.select_option("#layer", "none")
    _until(lambda: _painted(page), set())
    page.keyboard.press("m")
    page.fill("#opacity", "80")
    _until(lambda: _painted(page), colours)


def test_suggestions_are_flown_to_and_labelled_by_number_keys(opened: Opened, project: Project) -> None:
    page = opened.page
    for row, col, number in ((3, 2, 1), (9, 12, 2), (12, 21, 3)):
        page.keyboard.press(str(number))
        opened.click(row, col)
    _until(lambda: len(_labels(project)), 3)
    zoom = page.evaluate("document.querySelectorAll('#map canvas').length")
    page.keyboard.press("n")
    expect(page.locator("#suggestions button").first).to_have_attribute("aria-current", "true")
    assert page.locator("#suggestions button").first.inner_text().strip()
    expect(page.locator("#cell")).to_contain_text("Row")
    count = page.locator("#suggestions button").count()
    for done in range(min(3, count)):
        page.keyboard.press("1")
        expect(page.locator("#suggestions button.done")).to_have_count(done + 1)
        _until(lambda wanted=4 + done: len(_labels(project)), 4 + done)
    assert zoom
    page.keyboard.press("s")
    expect(page.locator("#similar button").first).to_be_visible()
    alike = page.locator("#similar button").count()
    page.keyboard.press("3")
    _until(lambda: len(_labels(project)) >= 6 + alike)
    assert len(project.store.suggested()) >= 3 + alike  # what is like another cell says little of the rest
    expect(page.locator("#similar-section")).to_be_hidden()
    page.click("#find-mistakes")


def test_classes_are_made_renamed_and_merged_on_the_page(opened: Opened, project: Project) -> None:
    page = opened.page
    page.fill("#new-class", "bare <b>ground</b>")
    page.press("#new-class", "Enter")
    expect(page.locator("#class-4 .name")).to_have_text("bare <b>ground</b>")
    expect(page.locator("#class-4")).to_have_attribute("aria-pressed", "true")
    opened.click(5, 5)
    _until(lambda: _labels(project), {(5, 5): 4})
    page.click("#edit-4")
    page.fill(".edit-name", "soil")
    page.click(".editor button[type=submit]")
    expect(page.locator("#class-4 .name")).to_have_text("soil")
    page.click("#edit-4")
    asked: list[str] = []
    answers = [False, True]
    page.on("dialog", lambda own: (asked.append(own.message), own.accept() if answers.pop(0) else own.dismiss()))
    page.select_option(".editor select", label="town")
    page.wait_for_timeout(300)  # to look through the list changes nothing
    assert asked == [] and _labels(project) == {(5, 5): 4}
    page.click(".editor button:text-is('Merge')")
    expect(page.locator("#class-4")).to_have_count(1)
    page.click(".editor button:text-is('Merge')")
    expect(page.locator("#class-4")).to_have_count(0)
    _until(lambda: _labels(project), {(5, 5): 2})
    assert len(asked) == 2 and asked[0].startswith("Merge 'soil' with 1 label into 'town'? This cannot be undone")
    page.fill("#new-class", "WOOD")
    page.press("#new-class", "Enter")
    expect(page.locator("#status")).to_have_text("there is a class 'WOOD' already")
    opened.complaints[:] = [text for text in opened.complaints if "400" not in text]


def test_conflicts_are_shown_and_settled(opened: Opened, project: Project) -> None:
    page = opened.page
    opened.click(3, 4)
    _until(lambda: len(_labels(project)), 1)
    other = Project(project.folder)
    other.label([Cell("scene.tif", 3, 4)], 2, "ben")
    expect(page.locator("#conflicts button")).to_have_count(1, timeout=10_000)
    expect(page.locator("#conflicts")).to_contain_text("ben: town")
    page.click("#conflicts button")
    expect(page.locator("#cell")).to_contain_text("In conflict")
    page.keyboard.press("2")
    _until(lambda: _labels(project), {(3, 4): 2})
    expect(page.locator("#conflict-section")).to_be_hidden()


def test_cells_are_chosen_and_labelled_by_keyboard_alone(opened: Opened, project: Project) -> None:
    page = opened.page
    page.focus("#map")
    for key in ("ArrowRight", "ArrowRight", "ArrowDown", "3"):
        page.keyboard.press(key)
    _until(lambda: list(_labels(project).values()), [3])
    page.keyboard.press("?")
    expect(page.locator("#help")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#help")).to_be_hidden()
    unnamed = page.evaluate(
        "[...document.querySelectorAll('button, input, select')].filter((e) => e.offsetParent && !(e.innerText.trim()"
        " || e.getAttribute('aria-label') || e.labels?.length || e.title)).map((e) => e.outerHTML)"
    )
    assert unnamed == []


def test_a_wrong_token_is_asked_for(url: str) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page()
        page.goto(url)
        page.fill("#token", TOKEN)
        page.click("#token-form button")
        page.wait_for_selector("#class-1")
        expect(page.locator("#token-section")).to_be_hidden()
        browser.close()


def test_clicks_while_the_service_is_down_are_saved_when_it_is_back(project: Project) -> None:
    folder = project.folder
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        with _served(project) as port:
            page = browser.new_page(viewport={"width": 1300, "height": 850}, reduced_motion="reduce")
            opened = Opened(page, f"http://127.0.0.1:{port}")
            opened.click(3, 4)
            expect(page.locator("#map")).to_have_attribute("data-unsent", "0")
            expect(page.locator("#status")).to_have_text("1 label saved: wood")
        opened.click(5, 6)
        opened.click(5, 7)
        page.keyboard.press("2")
        opened.click(5, 7)  # what is said last counts
        opened.click(9, 9)
        expect(page.locator("#map")).to_have_attribute("data-unsent", "4")
        page.keyboard.press("Control+z")
        expect(page.locator("#map")).to_have_attribute("data-unsent", "3")
        expect(page.locator("#status")).to_contain_text("not saved yet")
        assert page.evaluate("Object.keys(localStorage).length") == 3
        with _served(Project(folder), port):
            expect(page.locator("#map")).to_have_attribute("data-unsent", "0", timeout=20_000)
            again = Project(folder)
            assert _labels(again) == {(3, 4): 1, (5, 6): 1, (5, 7): 2}
            assert again.store.version() == 4
            assert page.evaluate("Object.keys(localStorage).length") == 0
        browser.close()


def test_what_was_left_unsent_is_sent_by_the_next_page(opened: Opened, project: Project) -> None:
    page = opened.page
    page.route("**/api/label/label", lambda route: route.abort())
    opened.click(3, 4)
    expect(page.locator("#map")).to_have_attribute("data-unsent", "1")
    expect(page.locator("#status")).to_contain_text("not saved yet")
    page.unroute("**/api/label/label")
    page.route("**/api/label/label", lambda route: (route.fetch(), route.abort()))  # written, but the answer is lost
    _until(lambda: (page.wait_for_timeout(20), _labels(project))[1], {(3, 4): 1})
    page.reload()
    page.unroute("**/api/label/label")
    expect(page.locator("#map")).to_have_attribute("data-unsent", "0", timeout=20_000)
    _until(lambda: page.evaluate("Object.keys(localStorage).length"), 0)
    assert _labels(project) == {(3, 4): 1} and project.store.version() == 1
    opened.complaints.clear()


def test_a_class_whose_labels_are_all_in_conflict_is_asked_about_before_it_goes(
    opened: Opened, project: Project
) -> None:
    page = opened.page
    other = Project(project.folder)
    other.label([Cell("scene.tif", 3, 4)], 1, "anna")
    other.label([Cell("scene.tif", 3, 4)], 2, "ben")
    expect(page.locator("#conflicts button")).to_have_count(1, timeout=10_000)
    asked: list[str] = []
    answers = [False, True]
    page.on("dialog", lambda own: (asked.append(own.message), own.accept() if answers.pop(0) else own.dismiss()))
    for count in (3, 2):
        if not page.locator(".editor").count():
            page.click("#edit-2")
        page.click(".editor button:text-is('Remove')")
        expect(page.locator("[data-class]")).to_have_count(count + 1)  # with that which clears
        page.wait_for_timeout(200)
    assert len(asked) == 2 and asked[0].startswith("Remove 'town' with its label? This cannot be undone")
    _until(lambda: _labels(project), {(3, 4): 1})


def test_the_rest_of_the_list_follows_each_label(opened: Opened, project: Project) -> None:
    page = opened.page
    rng = np.random.default_rng(0)
    for row, col in (
        (3, 2),
        (9, 5),
        (15, 3),
        (6, 10),
        (9, 13),
        (12, 12),
        (14, 11),
        (3, 22),
        (10, 19),
        (15, 21),
        (7, 20),
    ):
        page.keyboard.press(str(kinds()[row, col] + 1))
        opened.click(row, col)
    _until(lambda: len(_labels(project)), 11)
    expect(page.locator("#map")).to_have_attribute("data-labels", "11")
    expect(page.locator("#map")).to_have_attribute("data-refitting", "false")
    page.wait_for_timeout(300)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "/suggest" in request.url else None)
    page.keyboard.press("n")
    expect(page.locator("#suggestions button")).to_have_count(10)
    texts = page.locator("#suggestions button").all_inner_texts()
    assert sum("a random place, to measure by" in text for text in texts) == 2
    for done in range(10):
        current = page.locator("#suggestions button[aria-current=true]")
        expect(current).to_have_count(1)
        before, number = current.inner_text(), page.evaluate("document.querySelector('#map').dataset.fitted")
        row, col = map(int, page.evaluate("document.querySelector('#map').dataset.cell").split(","))
        page.wait_for_timeout(100)
        page.keyboard.press(str(int(rng.integers(1, 4)) if done % 2 else int(kinds()[row, col]) + 1))
        _until(lambda old=number: page.evaluate("document.querySelector('#map').dataset.fitted") != old)
        expect(page.locator("#suggestions button.done")).to_have_count(done + 1)
        if done == 0:
            _until(lambda: (page.wait_for_timeout(20), len(asked))[1] >= 2)
            assert "count=6" in asked[1] and "measure=0" in asked[1] and asked[1].count("keep=") == 3
            page.wait_for_timeout(200)
            assert page.locator("#suggestions button[aria-current=true]").inner_text() != before
    later = page.locator("#suggestions button").all_inner_texts()
    assert len(later) == 10 and later[:2] == texts[:2] and later[2:] != texts[2:]
    assert sum("a random place, to measure by" in text for text in later) == 2
    assert len(project.store.suggested()) == 8  # the random ones were not
    assert len(_labels(project)) == 21
