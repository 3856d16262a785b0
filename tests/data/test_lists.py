from __future__ import annotations

import csv
from pathlib import Path

import pytest
from PIL import Image

from mgcap.data.folders import open_folder
from mgcap.data.lists import name_class, read_list, read_names
from mgcap.data.splits import make_split, read_split, write_split
from mgcap.errors import DataError
from mgcap.runtime import Progress


class Words(Progress):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        self.lines.append(line)


def _images(folder: Path, *names: str) -> Path:
    for i, name in enumerate(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (16, 16), (i, 0, 0)).save(folder / name)
    return folder


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("header", [("path", "label"), ("Filename", "CLASS"), ("image", "label"), ("file", "class")])
def test_a_list_gives_files_and_labels(tmp_path: Path, delimiter: str, header: tuple[str, str]) -> None:
    _images(tmp_path, "a/1.png", "a/2.png", "b, c.png")
    _images(tmp_path.parent / "elsewhere", "4.png")
    rows = [("a/1.png", "Wald"), ("a/2.png", "Fluß"), ("b, c.png", "Wald"), ("../elsewhere/4.png", " Fluß ")]
    with (tmp_path / "x.csv").open("w", encoding="utf-8-sig", newline="") as file:
        writer = csv.writer(file, delimiter=delimiter)
        writer.writerow(("number", *header))
        for number, row in enumerate(rows):
            writer.writerow((number, *row))
        writer.writerow(("", "", ""))  # as spreadsheets write them
    found = open_folder(tmp_path / "x.csv")
    assert found.classes == ("Fluß", "Wald") and found.counts == {"Fluß": 2, "Wald": 2}
    own = dict(zip(map(found.relative, found.paths), found.labels, strict=True))
    assert own == {name: label.strip() for name, label in rows}
    assert found.root == tmp_path and all(path.is_file() for path in found.paths)
    write_split(tmp_path / "split.csv", found, split := make_split(found.targets, 0.5))
    assert read_split(tmp_path / "split.csv", found) == split


def test_a_list_from_windows_has_other_slashes(tmp_path: Path) -> None:
    _images(tmp_path, "a/1.png", "b/2.png")
    (tmp_path / "x.csv").write_bytes(b"path;label\r\na\\1.png;a\r\nb\\2.png;b\r\n")
    assert open_folder(tmp_path / "x.csv").labels == ["a", "b"]


def test_rows_that_repeat_count_once(tmp_path: Path) -> None:
    _images(tmp_path, "1.png", "2.png")
    (tmp_path / "x.csv").write_text("path,label\n1.png,a\n./1.png,a\n2.png,b\nsub/../1.png,a\n")
    (tmp_path / "sub").mkdir()
    words = Words()
    assert open_folder(tmp_path / "x.csv", progress=words).labels == ["a", "b"]
    assert words.lines == ["x.csv: 2 rows repeat an earlier one and are left out"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (b"path,label\n1.png,a\n9.png,b\n8.png,b\n", "lists 2 files that are not there, the first in line 3: 9.png"),
        (b"path,label\n1.png,a\n9.png,b\n", "lists a file that is not there, in line 3: 9.png"),
        (b"path,label\n1.png,a\n" + b"x" * 5000 + b".png,b\n", "lists a file that is not there"),
        (b"path,label\n1.png,a\n2.png, \n", "line 3: the label is empty"),
        (b"path,label\n1.png\n", "line 2: the label is empty"),
        (b"path,label\n,b\n", "line 2: the path is empty"),
        (b"path,label\n1.png,a\n2.png,b\n./1.png,b\n", "1.png is labelled 'a' in line 2 and 'b' in line 4"),
        (b"path,kind\n1.png,a\n", r"no column label \(or class\); it has path, kind"),
        (b"1.png,a\n2.png,b\n", r"no column path \(or file, filename, image\); it has 1.png, a"),
        (b"path,label\n", "lists no images"),
        (b"", "it has no header"),
        (b"path,label\n1.png,a\n2.png,a\n", "only the class 'a', and 2 are needed"),
        ("path,label\n1.png,Fluß\n".encode("latin-1"), "is not text in UTF-8"),
        ("path,label\n1.png,a\n".encode("utf-16"), "is not text in UTF-8"),
        (b"path,label\n1.png," + b"a" * 200_000 + b"\n", "is not a CSV file"),
    ],
)
def test_what_is_wrong_with_a_list_is_said(tmp_path: Path, text: bytes, sentence: str) -> None:
    _images(tmp_path, "1.png", "2.png")
    (tmp_path / "x.csv").write_bytes(text)
    with pytest.raises(DataError, match=sentence):
        open_folder(tmp_path / "x.csv")


def test_one_class_is_enough_where_one_is(tmp_path: Path) -> None:
    _images(tmp_path, "1.png")
    (tmp_path / "x.csv").write_text("path,label\n1.png,a\n")
    assert open_folder(tmp_path / "x.csv", minimum_classes=1).labels == ["a"]
    with pytest.raises(DataError, match=r"there is no file .*did you mean 'x.csv'"):
        open_folder(tmp_path / "y.csv")
    assert read_list(tmp_path / "x.csv") == [(tmp_path / "1.png", "a")]


@pytest.mark.parametrize(
    ("stem", "name"),
    [
        ("forest_001", "forest"),
        ("denseresidential00", "denseresidential"),
        ("forest (3)", "forest"),
        ("forest(3)", "forest"),
        ("sea ice - 12", "sea ice"),
        ("Forêt.7", "Forêt"),
        ("LCZ_1_001", "LCZ_1"),
        ("forest", "forest"),
        ("a001", "a"),
        ("0001", ""),
    ],
)
def test_a_class_is_a_name_without_its_number(stem: str, name: str) -> None:
    assert name_class(stem) == name


def test_flat_folders_have_their_classes_in_names(tmp_path: Path) -> None:
    _images(tmp_path, "river_10.tif", "forest_001.png", "forest (2).jpg", "river_9.tif", "lake1.webp")
    (tmp_path / "readme.txt").write_text("hello")
    (tmp_path / "empty").mkdir()
    words = Words()
    found = open_folder(tmp_path, progress=words)
    assert found.root == tmp_path and found.counts == {"forest": 2, "lake": 1, "river": 2}
    assert [found.relative(path) for path in found.paths][:2] == ["forest (2).jpg", "forest_001.png"]
    (line,) = words.lines
    assert "no class folders" in line and "forest (2), lake (1), river (2)" in line and "'forest' of forest" in line


@pytest.mark.parametrize(
    "names",
    [
        ("a.png", "b.png", "c.png"),  # each its own class
        ("forest_1.png", "forest_2.png"),  # one class
        ("1.png", "2.png"),  # none
        ("tile_0_0.png", "tile_0_1.png", "tile_1_0.png", "tile_1_1.png"),  # rows and columns
        ("forest_1.png", "forest_2.png", "x.png", "y.png"),
    ],
)
def test_names_that_say_no_classes_are_refused(tmp_path: Path, names: tuple[str, ...]) -> None:
    _images(tmp_path, *names)
    with pytest.raises(DataError, match="no images in subfolders, nor 2 or more classes in the names of its files"):
        open_folder(tmp_path)
    assert read_names(tmp_path, 2) is None


def test_class_folders_go_before_names(tmp_path: Path) -> None:
    _images(tmp_path, "x/river_1.png", "y/forest_1.png", "lake_1.png", "lake_2.png", "sea_1.png", "sea_2.png")
    assert open_folder(tmp_path).classes == ("x", "y")
