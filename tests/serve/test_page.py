"""The page in a real browser, where Chromium is installed."""

from __future__ import annotations

import shutil
import threading
import warnings
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import rasterio
from PIL import Image
from playwright.sync_api import expect, sync_playwright
from rasterio.transform import from_origin

from mgcap.data.folders import open_folder
from tests.serve.conftest import Start

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed, so the page is not tried out")


@pytest.fixture
def browser() -> Iterator[Any]:
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


def _opened(browser: Any, url: str, place: str = "", **options: Any) -> tuple[Any, list[str]]:
    page = browser.new_context(**options).new_page()
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: complaints.append(request.url) if not _ours(request.url, url) else None)
    page.goto(url + place)
    return page, complaints


def _ours(address: str, url: str) -> bool:
    return address.startswith((url, "data:", "blob:"))


def test_an_image_is_named_and_explained(start: Start, browser: Any, scenes: Path) -> None:
    page, complaints = _opened(browser, start())
    expect(page.locator("#model option")).to_have_text(["first", "second"])
    page.set_input_files("#file", open_folder(scenes).paths[0])
    page.wait_for_selector("#result .rose")
    assert page.locator(".bars li").count() == 4
    assert page.locator("#result img").count() >= 4
    assert not page.locator("#overlap").is_visible()
    page.select_option("#model", "second")
    page.keyboard.press("Tab")
    page.locator("#go").press("Enter")
    expect(page.locator(".rose path")).to_have_count(2)
    assert complaints == []


def _raster(path: Path, scenes: Path, times: int = 1, **options: Any) -> Path:
    pixels = np.concatenate([np.asarray(Image.open(p)) for p in open_folder(scenes).paths[::6] * times], 1)
    place = {"crs": "EPSG:25832", "transform": from_origin(500_000, 5_600_000, 0.5, 0.5), **options}
    size = {"height": 64, "width": pixels.shape[1]}
    with rasterio.open(path, "w", driver="GTiff", count=3, dtype="uint8", **size, **place) as dataset:
        dataset.write(np.moveaxis(pixels, -1, 0))
    return path


@pytest.mark.parametrize(
    ("times", "options", "job"),
    [(3, {}, "map"), (3, {"BIGTIFF": "YES"}, "map"), (3, {"ENDIANNESS": "BIG"}, "map"), (1, {}, "explain"),
     (3, {"crs": None, "transform": None}, "explain")],
    ids=["georeferenced", "BigTIFF", "big endian", "a tile", "without a place"],
)  # fmt: skip
def test_a_large_geotiff_is_mapped_without_being_asked(
    start: Start, browser: Any, scenes: Path, tmp_path: Path, times: int, options: dict[str, Any], job: str
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # rasterio's, of a raster without a place
        raster = _raster(tmp_path / "r.tif", scenes, times, **options)
    page, complaints = _opened(browser, start())
    page.wait_for_selector("#model option", state="attached")
    page.set_input_files("#file", raster)
    page.wait_for_selector("canvas" if job == "map" else "#result .rose")
    assert page.input_value("#job") == job
    if job == "map":  # who chooses otherwise gets it
        page.select_option("#job", "explain")
        page.click("#go")
        page.wait_for_selector("#result .rose")
        assert page.input_value("#job") == "explain"
    assert complaints == []


def test_a_raster_is_mapped_by_keyboard_on_a_phone_in_the_dark(
    start: Start, browser: Any, scenes: Path, tmp_path: Path
) -> None:
    raster = _raster(tmp_path / "r.tif", scenes)
    page, complaints = _opened(
        browser, start(), color_scheme="dark", viewport={"width": 390, "height": 800}, accept_downloads=True
    )
    page.wait_for_selector("#model option", state="attached")
    page.select_option("#job", "map")
    page.set_input_files("#file", raster)
    page.wait_for_selector("canvas")
    page.focus("canvas")
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    assert "row 1, column 3" in page.inner_text(".cell")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(17, 23, 29)"
    with page.expect_download() as download:
        page.click("text=landuse.gpkg")
    assert Path(download.value.path()).read_bytes().startswith(b"SQLite format 3")
    assert complaints == []


def test_guessed_bands_are_told_in_the_words_of_the_page(
    start: Start, browser: Any, scenes: Path, tmp_path: Path
) -> None:
    raster = _raster(tmp_path / "r.tif", scenes, photometric="minisblack")
    page, complaints = _opened(browser, start())
    page.wait_for_selector("#model option", state="attached")
    page.select_option("#job", "map")
    page.set_input_files("#file", raster)
    expect(page.locator(".note")).to_contain_text("name the bands, as 3,2,1")
    page.fill("#bands", "3,2,1")
    page.click("#go")
    expect(page.locator(".note")).to_have_count(0)
    page.fill("#scale", "dark")
    page.click("#go")
    expect(page.locator("#status")).to_have_text("scale takes auto, percentiles or BLACK,WHITE, not 'dark'")
    assert [text for text in complaints if "400" not in text] == []


def test_errors_are_shown_and_tokens_asked_for(start: Start, browser: Any, tmp_path: Path) -> None:
    page, _ = _opened(browser, start(token="sesame"))
    page.wait_for_selector("#token", state="visible")
    assert "token" in page.inner_text("#status")
    page.fill("#token", "sesame")
    (tmp_path / "x.jpg").write_text("<svg onload=alert(1)>")
    page.set_input_files("#file", tmp_path / "x.jpg")
    expect(page.locator("#status")).to_contain_text("only JPEG")
    assert page.locator("#result").is_hidden()
    page.goto(page.url + "docs")
    page.wait_for_selector("text=POST /api/predict")


def test_the_token_of_the_printed_address_is_used_and_hidden(start: Start, browser: Any, scenes: Path) -> None:
    url = start(token="sesame-sesame")
    page, complaints = _opened(browser, url, "/#token=sesame-sesame")
    expect(page.locator("#model option")).to_have_text(["first", "second"])
    assert page.evaluate("location.href") == f"{url}/"
    page.set_input_files("#file", open_folder(scenes).paths[0])
    page.wait_for_selector("#result .rose")
    assert complaints == []


class _Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>evil</title>")

    def log_message(self, form: str, *args: Any) -> None:
        pass


def test_a_page_under_another_name_gets_nothing(start: Start, scenes: Path) -> None:
    """DNS rebinding: a name of the attacker that comes to mean this machine."""
    url = start()
    port = url.rsplit(":", 1)[1]
    stranger = ThreadingHTTPServer(("127.0.0.1", 0), _Page)
    threading.Thread(target=stranger.serve_forever, daemon=True).start()
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--host-resolver-rules=MAP evil.example 127.0.0.1"]
        )
        page = found.new_page()
        reply = page.goto(f"http://evil.example:{port}/")
        assert reply is not None and reply.status == 421
        script = "async () => { try { return (await fetch('/api/models')).status } catch (error) { return 0 } }"
        assert page.evaluate(script) == 421
        page.goto(f"http://127.0.0.1:{stranger.server_port}/")  # a page of another origin cannot post either
        script = (
            "async (url) => { const body = new FormData(); body.append('file', new Blob(['x'])); try {"
            " return (await fetch(url + '/api/predict', {method: 'POST', body, mode: 'no-cors'})).type }"
            " catch (error) { return 'failed' } }"
        )
        assert page.evaluate(script, url) in ("opaque", "failed")
        found.close()
    stranger.shutdown()
    counted = httpx.get(f"{url}/metrics").text
    assert 'status="403"} 1.0' in counted
    assert 'path="/api/predict"' not in counted  # it never reached the application
