from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from PIL import Image

from mgcap.data.folders import content_hashes, list_images, open_folder
from mgcap.errors import DataError


def _fill(root: Path, classes: dict[str, int]) -> Path:
    for name, count in classes.items():
        (root / name).mkdir(parents=True)
        for i in range(count):
            Image.new("RGB", (16, 16), (i, len(name), 0)).save(root / name / f"{i}.png")
    return root


def test_classes_and_files_are_sorted(tmp_path: Path) -> None:
    folder = open_folder(_fill(tmp_path, {"river": 2, "beach": 3}))
    assert folder.classes == ("beach", "river")
    assert folder.counts == {"beach": 3, "river": 2}
    assert [folder.relative(p) for p in folder.paths][:2] == ["beach/0.png", "beach/1.png"]
    assert folder.labels == ["beach"] * 3 + ["river"] * 2
    assert folder.subset([4, 0]).labels == ["river", "beach"]


@pytest.mark.parametrize("above", ["UCMerced_LandUse/Images", "EuroSAT/2750", "a/b/c"])
def test_layouts_as_people_unzip_them(tmp_path: Path, above: str) -> None:
    _fill(tmp_path / above, {"x": 1, "y": 1, "z": 1})
    (tmp_path / "__MACOSX").mkdir()
    (tmp_path / ".hidden").mkdir()
    (tmp_path / "readme.txt").write_text("hello")
    assert open_folder(tmp_path).root == tmp_path / above


def test_a_stray_preview_folder_does_not_win(tmp_path: Path) -> None:
    _fill(tmp_path, {"preview": 1})
    _fill(tmp_path / "Images", {"x": 1, "y": 1, "z": 1})
    assert open_folder(tmp_path).classes == ("x", "y", "z")


def test_suffixes_and_hidden_files(tmp_path: Path) -> None:
    _fill(tmp_path, {"a": 1, "b": 1})
    for name in ("c.JPG", "d.webp", "e.TIFF", ".f.png", "g.gif", "h.txt"):
        (tmp_path / "a" / name).touch()
    assert [p.name for p in list_images(tmp_path / "a")] == ["0.png", "c.JPG", "d.webp", "e.TIFF"]


def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    for sentence, path in (
        ("there is no folder", tmp_path / "nothing"),
        ("is a file", _fill(tmp_path / "x", {"a": 1}) / "a" / "0.png"),
        ("only the class 'a'", tmp_path / "x"),
    ):
        with pytest.raises(DataError, match=sentence):
            open_folder(path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="no images in subfolders"):
        open_folder(tmp_path / "empty")
    (tmp_path / "flat").mkdir()
    Image.new("RGB", (16, 16)).save(tmp_path / "flat" / "a.png")
    with pytest.raises(DataError, match="no images in subfolders"):
        open_folder(tmp_path / "flat")


def test_fingerprints_find_duplicates_whatever_their_format(tmp_path: Path) -> None:
    root = _fill(tmp_path, {"a": 2, "b": 1})
    shutil.copy(root / "a/0.png", root / "b/copy.png")
    Image.open(root / "a/0.png").save(root / "b/same.tif")
    (root / "b/broken.png").write_text("no")
    paths = [root / p for p in ("a/0.png", "a/1.png", "b/0.png", "b/copy.png", "b/same.tif", "b/broken.png")]
    first, second, other, copy, same, broken = content_hashes(paths)
    assert first == copy == same and len({first, second, other}) >= 2 and broken is None
