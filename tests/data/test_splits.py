from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mgcap.data.folders import open_folder
from mgcap.data.splits import make_split, read_split, write_split
from mgcap.errors import DataError

TARGETS = [0] * 10 + [1] * 20 + [2] * 5


def test_ratio_and_count() -> None:
    split = make_split(TARGETS, 0.8, seed=1)
    assert Counter(TARGETS[i] for i in split.train) == {0: 8, 1: 16, 2: 4}
    assert sorted(split.train + split.test) == list(range(35))
    assert Counter(TARGETS[i] for i in make_split(TARGETS, 3).train) == {0: 3, 1: 3, 2: 3}


def test_seeds() -> None:
    assert make_split(TARGETS, 0.5, 1) == make_split(TARGETS, 0.5, 1)
    assert make_split(TARGETS, 0.5, 1) != make_split(TARGETS, 0.5, 2)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.integers(6, 15), min_size=2, max_size=4),
    st.lists(st.tuples(st.integers(0, 200), st.integers(0, 200)), max_size=6),
    st.floats(0.1, 0.9),
    st.integers(0, 99),
)
def test_duplicates_never_land_in_both_subsets(
    sizes: list[int], pairs: list[tuple[int, int]], ratio: float, seed: int
) -> None:
    targets = [i for i, size in enumerate(sizes) for _ in range(size)]
    fingerprints: list[int | None] = list(range(len(targets)))
    for a, b in pairs:
        fingerprints[a % len(targets)] = fingerprints[b % len(targets)]
    try:
        split = make_split(targets, ratio, seed, fingerprints)
    except DataError as error:
        assert "duplicates" in str(error)
        return
    assert not {fingerprints[i] for i in split.train} & {fingerprints[i] for i in split.test}
    assert sorted(split.train + split.test) == list(range(len(targets)))


def test_images_without_a_fingerprint_are_not_duplicates_of_each_other() -> None:
    split = make_split(TARGETS, 0.6, 0, [None] * len(TARGETS))
    assert len(split.train) == 21


def test_what_cannot_be_split_is_said() -> None:
    with pytest.raises(DataError, match="'b' has 1 image; a split needs at least two"):
        make_split([0, 0, 1], 0.5, classes=("a", "b"))
    with pytest.raises(DataError, match="leaves none for testing"):
        make_split([0, 0, 1, 1], 2)
    for wrong in (0.0, 1.0, 1.5, -1, 0):
        with pytest.raises(DataError, match="between 0 and 1"):
            make_split(TARGETS, wrong)
    with pytest.raises(DataError, match="duplicates of each other"):
        make_split([0, 0, 1, 1], 0.5, 0, ["x", "x", "y", "z"])


def test_file_and_back(scenes: Path, tmp_path: Path) -> None:
    folder = open_folder(scenes)
    split = make_split(folder.targets, 0.5, 3)
    write_split(tmp_path / "split.csv", folder, split)
    assert read_split(tmp_path / "split.csv", folder) == split
    assert (tmp_path / "split.csv").read_text().splitlines()[0] == "path,label,subset"


def test_files_with_the_former_column(scenes: Path, tmp_path: Path) -> None:
    folder = open_folder(scenes)
    names = [folder.relative(path) for path in folder.paths]
    path = tmp_path / "split.csv"
    rows = [f"{n},{folder.labels[i]},{'test' if i % 3 else 'train'}" for i, n in enumerate(names)]
    path.write_text("\n".join(["path,label,side", *rows]))
    split = read_split(path, folder)
    assert split.train == tuple(range(0, len(names), 3))
    assert sorted(split.train + split.test) == list(range(len(names)))
    path.write_text(f"path,label,side\n{names[0]},{folder.labels[0]},left\n")
    with pytest.raises(DataError, match="line 2: the subset must be train or test, not 'left'"):
        read_split(path, folder)


def test_bad_files(scenes: Path, tmp_path: Path) -> None:
    folder = open_folder(scenes)
    first = folder.relative(folder.paths[0])
    label = folder.labels[0]
    path = tmp_path / "split.csv"
    with pytest.raises(DataError, match="cannot be read"):
        read_split(path, folder)
    for content, sentence in (
        ("", "not a split file"),
        ("a,b\n1,2\n", "not a split file"),
        (f"path,label,subset\n{first},{label},left\n", "line 2: the subset"),
        (f"path,label,subset\nno/such.png,{label},train\n", "has no image"),
        (f"path,label,subset\n{first},other,train\n", "lies elsewhere"),
        (f"path,label,subset\n{first},{label},train\n{first},{label},test\n", "in both subsets"),
    ):
        path.write_text(content)
        with pytest.raises(DataError, match=sentence):
            read_split(path, folder)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match="cannot be read"):
        read_split(path, folder)
