"""How fluently the page of labelling pans: milliseconds between frames while the map is dragged, in Chromium.

    python benchmarks/panning.py kitsap.tif --index kitsap.zarr

Two classes are labelled first, so that the map of the whole scene lies over the image.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
from pathlib import Path

import numpy as np
from playwright.sync_api import sync_playwright

from mgcap import geo

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("raster", type=Path)
parser.add_argument("--index", type=Path, required=True)
parser.add_argument("--seconds", type=float, default=5.0)
args = parser.parse_args()

FRAMES = """() => { window.frames_ = []; let last = performance.now();
    window.places_ = new Set();
    const next = (now) => {
        window.frames_.push(now - last); last = now; requestAnimationFrame(next);
        window.places_.add(document.querySelector(".leaflet-map-pane").style.transform);
    };
    requestAnimationFrame(next); }"""

browser_path = next(
    found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))
)
with (
    tempfile.TemporaryDirectory() as folder,
    geo.label(args.raster, Path(folder) / "p", index=args.index, classes=["one", "two"]) as served,
    sync_playwright() as playwright,
):
    browser = playwright.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    page.goto(served.url)
    page.wait_for_selector("#class-1")
    box = page.locator("#map").bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    for number, place in ((1, -150), (2, 150)):
        page.keyboard.press(str(number))
        page.mouse.click(x + place, y)
    page.wait_for_timeout(8000)
    page.evaluate(FRAMES)
    page.mouse.move(x, y)
    page.mouse.down(button="left")
    angle, waited = 0.0, 0.0
    while waited < 1000 * args.seconds:
        angle, waited = angle + 0.1, waited + 16
        page.mouse.move(x + 250 * np.sin(angle), y + 150 * np.sin(1.7 * angle))
        page.wait_for_timeout(16)
    page.mouse.up()
    frames, places = page.evaluate("() => [window.frames_, window.places_.size]")
    browser.close()
late = np.percentile(frames, 95)
print(f"{len(frames)} frames at {places} places of the map")
print(f"median {statistics.median(frames):.1f} ms, 95 of 100 within {late:.1f} ms")
