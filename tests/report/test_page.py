from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from PIL import Image

from mgcap.report.page import Page, thumbnail

SUMMARY = {
    "classes": ["<b>", "b", "empty"],
    "per_class_accuracy": {"<b>": 50.0, "b": 100.0, "empty": float("nan")},
    "confusion": [[1, 1, 0], [0, 2, 0], [0, 0, 0]],
}


def _page(tmp_path: Path) -> str:
    Image.fromarray(np.zeros((40, 30, 3), np.uint8)).save(tmp_path / "a.png")
    mistake = {"path": "a.png", "truth": "<b>", "predicted": "b", "probability": 0.75}
    lost = {**mistake, "path": "gone.png"}
    tables = [{"title": "t", "columns": ("c",), "rows": [("<script>",)]}]
    mistakes = {"summary": SUMMARY, "wrong": [mistake, mistake, lost], "root": tmp_path}
    Page("A & B", "", "mgcap evaluate x", {}, tables=tables, **mistakes).write(tmp_path / "page.html")
    return (tmp_path / "page.html").read_text()


def test_nothing_comes_from_outside_and_names_are_escaped(tmp_path: Path) -> None:
    page = _page(tmp_path)
    assert not re.search(r"""(src|href)=["'](?!data:)""", page)
    assert "A &amp; B" in page and "<script>" not in page.replace("<script>\nconst", "") and "<b>" not in page


def test_cells_and_pictures(tmp_path: Path) -> None:
    page = _page(tmp_path)
    assert 'data-cell="0,1"' in page and 'data-cell="1,1"' not in page
    assert page.count("<figure>") == 1  # the picture that is gone is left out
    assert "empty</span>" not in page  # a class without test images has no bar


def test_a_thumbnail_is_small(tmp_path: Path) -> None:
    Image.fromarray(np.zeros((900, 600, 3), np.uint8)).save(tmp_path / "a.png")
    assert str(thumbnail(tmp_path / "a.png")).startswith("data:image/jpeg") and thumbnail(tmp_path / "no.png") is None
