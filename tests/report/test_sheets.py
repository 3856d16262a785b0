from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from mgcap.report.sheets import INK, PAPER, fitted, font, picture, save_picture


def _width(text: str) -> int:
    """Columns that have ink where a text is drawn."""
    image = Image.new("L", (2000, 60), 255)
    ImageDraw.Draw(image).text((0, 0), text, 0, font(20))
    return int((np.asarray(image) < 128).any(0).nonzero()[0].max())


def test_lines_that_are_too_wide_are_shortened() -> None:
    long = "medium residential with gardens and lanes"
    assert fitted("forest", 200, 20) == "forest"
    short = fitted(long, 200, 20)
    assert short.endswith("...") and long.startswith(short[:-3]) and 150 < _width(short) <= 200 < _width(long)


def test_names_in_other_alphabets_are_drawn() -> None:
    """Each letter by itself, not the box of one that is not known."""
    drawn = {bytes(font(20).getmask(letter)) for letter in "éßлесλ"}
    assert len(drawn) == len("éßлесλ") and bytes(font(20).getmask("\U000f0000")) not in drawn


def test_pixels_are_what_was_given(tmp_path: Path) -> None:
    values = np.linspace(-0.1, 1.1, 4 * 5 * 3).reshape(4, 5, 3)
    save_picture(picture(values), tmp_path / "plain.png")
    with Image.open(tmp_path / "plain.png") as image:
        assert image.format == "PNG" and np.array_equal(np.asarray(image), np.rint(255 * values.clip(0, 1)))
    assert picture(np.zeros((3, 4, 3), np.uint8), 7).size == (7, 7)
    assert INK != PAPER and [file.name for file in tmp_path.iterdir()] == ["plain.png"]
