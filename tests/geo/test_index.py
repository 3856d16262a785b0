"""The store against plain files: its bytes, its checksums, and what becomes of damage."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest

from mgcap.errors import RasterError
from mgcap.geo.blocks import Cells
from mgcap.geo.index import Index, create_index, open_index
from mgcap.runtime import Progress
from tests.geo.indexes import about_of, cells_of, plan_of

ARRAYS = ("vectors", "rotations", "valid")


@pytest.fixture
def index(tmp_path: Path) -> Index:
    """Of 9 x 12 cells in 2 x 2 blocks, whole."""
    made = create_index(tmp_path / "scene.zarr", about_of(plan_of(9, 12)), 5)
    for chunk in range(4):
        made.write(chunk, cells_of(made.plan, chunk))
    return made


def _same(one: Cells, other: Cells) -> bool:
    return all((a == b).all() for a, b in zip(one, other, strict=True))


def _file(index: Index, name: str, chunk: int) -> Path:
    return Path(index.name) / name / "c" / str(chunk // 2) / str(chunk % 2) / ("0" if name == "vectors" else "")


def _crc32c(content: bytes) -> int:
    """Castagnoli's checksum, bit by bit."""
    crc = 0xFFFFFFFF
    for byte in content:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def test_blocks_are_plain_numbers_with_a_checksum(index: Index) -> None:
    assert index.plan.chunks == 4
    for chunk in range(4):
        rows, columns = index.plan.cells(chunk)
        wanted = cells_of(index.plan, chunk)
        for name, own in zip(ARRAYS, wanted, strict=True):
            content = _file(index, name, chunk).read_bytes()
            assert int.from_bytes(content[-4:], "little") == _crc32c(content[:-4])
            kept = np.frombuffer(content[:-4], own.dtype.newbyteorder("<")).reshape(7, 7, *own.shape[2:])
            assert (kept[: rows.stop - rows.start, : columns.stop - columns.start] == own).all()
        assert _same(index.read(chunk), wanted) and index.has(chunk)
    assert not index.missing()


def test_every_cell_is_in_one_block(index: Index) -> None:
    seen = np.zeros((9, 12), int)
    for place, cells in index.blocks():
        seen[place] += 1
        assert cells.valid.shape == seen[place].shape
    assert (seen == 1).all()


def test_what_was_not_written_has_no_data_and_is_missing(tmp_path: Path) -> None:
    made = create_index(tmp_path / "deep" / "scene.zarr", about_of(plan_of(9, 12)), 5)
    made.write(2, cells_of(made.plan, 2))
    assert made.missing() == [0, 1, 3]
    assert not made.read(0).valid.any()
    empty = Cells(np.zeros((7, 7, 5), np.float16), np.zeros((7, 7), np.uint16), np.zeros((7, 7), np.uint8))
    made.write(0, empty)  # a block without data is done, too
    assert made.missing() == [1, 3]
    assert _same(made.read(0), empty)
    assert [path.name for path in tmp_path.joinpath("deep").iterdir()] == ["scene.zarr"]  # nothing else is left


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


DAMAGES: list[Callable[[Path], Any]] = [
    _flip,
    lambda path: path.write_bytes(path.read_bytes()[:-1]),
    lambda path: path.write_bytes(path.read_bytes()[:-4]),  # without its checksum
    lambda path: path.write_bytes(b""),
    lambda path: (path.unlink(), path.mkdir()),
]


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_block_is_noticed(index: Index, name: str, damage: Callable[[Path], Any]) -> None:
    damage(_file(index, name, 3))
    again = open_index(index.name)
    assert again.missing() == [3]
    if name == "valid" and _file(index, name, 3).is_dir():  # as if it had never been written
        assert not again.read(3).valid.any()
    else:
        with pytest.raises(RasterError, match=r"a part of the index .*scene\.zarr is damaged; make it again"):
            again.read(3)
    assert _same(again.read(2), cells_of(again.plan, 2))


@pytest.mark.parametrize("name", ARRAYS)
def test_a_block_without_one_of_its_files_is_missing(index: Index, name: str) -> None:
    _file(index, name, 1).unlink()
    assert index.missing() == [1]
    if name == "valid":  # as if it had never been written: it is written last
        assert not index.read(1).valid.any()
    else:
        with pytest.raises(RasterError, match="is damaged"):
            index.read(1)
    index.write(1, cells_of(index.plan, 1))
    assert not index.missing()


@pytest.mark.parametrize("scheme", ["memory", "file"])
def test_an_index_elsewhere_is_read_by_fsspec(index: Index, scheme: str, tmp_path: Path) -> None:
    address = f"{scheme}://{tmp_path}/copy.zarr"
    system = fsspec.filesystem(scheme)
    system.put(index.name, f"{tmp_path}/copy.zarr", recursive=True)
    found = open_index(address)
    assert found.name == address and found.about == index.about
    assert all(_same(found.read(chunk), index.read(chunk)) for chunk in range(4))
    assert not found.missing()
    system.rm(f"{tmp_path}/copy.zarr/vectors/c/0/1/0")
    assert open_index(address).missing() == [1]
    with pytest.raises(RasterError, match=rf"{scheme}://.*/none.zarr is not an index, or damaged"):
        open_index(f"{scheme}://{tmp_path}/none.zarr")


def test_the_index_of_another_process_is_taken(tmp_path: Path) -> None:
    path, about = tmp_path / "scene.zarr", about_of(plan_of(9, 12))
    first = create_index(path, about, 5)
    first.write(0, cells_of(first.plan, 0))
    second = create_index(path, about, 5)
    assert second.missing() == [1, 2, 3]
    other = tmp_path / "file.zarr"
    other.write_text("in its place")
    with pytest.raises(OSError, match=r"file\.zarr"):
        create_index(other, about, 5)
    assert other.read_text() == "in its place"


def test_differences_are_told_in_words(index: Index) -> None:
    own, plan = index.about, index.plan

    def told(chunk: int | None = None, **changes: Any) -> list[str]:
        names = ("descriptor", "projection", "crs", "transform")
        wanted = {name: changes.pop(name) for name in names if name in changes}
        return index.differences(about_of(plan.model_copy(update=changes), **wanted))

    assert index.differences(own) == []
    assert told(raster="/moved/scene.tif", model="m", model_fingerprint="f", chunk=3, block=3, allow_vrt=True) == []
    assert told(engine="openvino_int8") == []  # it is whole
    assert told(bands=(3, 2, 1), black=1, white=2) == ["`bands`", "`scale`"]
    assert told(crs="x") == told(transform=(10, 0, 0, 0, -10, 1)) == ["the place of the raster"]
    assert told(sources="other") == ["the files that the raster is read from"]
    assert told(size=(121, 90)) == ["the size of the raster"]
    assert told(changed=(1, 1)) == ["the date or length of the raster's file"]
    assert told(shape=(21, 21)) == ["the resolution of tiles"]
    assert told(min_valid=0.4) == ["`min_valid`"]
    assert told(descriptor="e") == told(projection="e") == ["the descriptors of the model"]
    assert told(dense=False) == ["`exact`"]
    assert told(cell=(20, 20), cells_in_tile=1) == []
    assert told(cell=(7, 7), cells_in_tile=3) == ["`cells`"]
    assert told(cell=(20, 20)) == ["`tile`"]
    shutil.rmtree(Path(index.name) / "valid" / "c" / "0")
    assert told(engine="openvino_int8") == ["`engine`"]  # what is missing would be of another


def test_tiles_that_were_looked_at_one_by_one_do_for_dense_ones(tmp_path: Path) -> None:
    made = create_index(tmp_path / "a.zarr", about_of(plan_of(9, 12, dense=False)), 5)
    assert made.differences(about_of(plan_of(9, 12))) == []


def _said(index: Index) -> tuple[Path, Any]:
    path = Path(index.name) / "zarr.json"
    return path, json.loads(path.read_text())


def _about(**changes: Any) -> Callable[[Index], None]:
    def change(index: Index) -> None:
        path, said = _said(index)
        said["attributes"]["mgcap_index"].update(changes)
        path.write_text(json.dumps(said))

    return change


def _plan(**changes: Any) -> Callable[[Index], None]:
    def change(index: Index) -> None:
        path, said = _said(index)
        said["attributes"]["mgcap_index"]["plan"].update(changes)
        path.write_text(json.dumps(said))

    return change


def _array(name: str, **changes: Any) -> Callable[[Index], None]:
    def change(index: Index) -> None:
        path = Path(index.name) / name / "zarr.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    return change


def _remove(name: str) -> Callable[[Index], None]:
    return lambda index: shutil.rmtree(Path(index.name) / name)


BYTES = {"name": "bytes", "configuration": {"endian": "little"}}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_about(format=99), "it has format 99, not 3"),
        (_about(format="x"), "is not an index that this version of mgcap knows"),
        (_about(further=1), "is not an index that this version of mgcap knows"),
        (_about(transform=[1, 2]), "is not an index that this version of mgcap knows"),
        (_plan(size=[1 << 40, 1 << 40]), "too many cells"),
        (_plan(cell=[0, 0]), "not an index, or damaged"),
        (_plan(block=0), "not an index, or damaged"),
        (_plan(block=-7), "not an index, or damaged"),
        (_plan(size=[10, 10]), "its vectors are not as they should be"),
        (_array("valid", data_type="float64"), "its valid are not as they should be"),
        (_array("valid", data_type="object"), "not an index, or damaged"),
        (_array("vectors", codecs=[BYTES]), "its vectors are not as they should be"),
        (_array("vectors", codecs=[BYTES, {"name": "gzip", "configuration": {"level": 1}}]), "its vectors are not"),
        (_array("rotations", shape=[9, 13]), "its rotations are not as they should be"),
        (_array("vectors", shape=[9, 12, 1 << 21]), "its vectors are not as they should be"),
        (_array("vectors", fill_value=1.0), "its vectors are not as they should be"),
        (_array("rotations", fill_value=0), "its rotations are not as they should be"),
        (_array("valid", fill_value=255), "its valid are not as they should be"),
        (_remove("rotations"), "not an index, or damaged"),
        (lambda index: _said(index)[0].write_text("{}"), "is not an index"),
        (lambda index: _said(index)[0].write_text("[" * 9999), "is not an index"),
        (lambda index: _said(index)[0].write_bytes(b"\xff\xfe"), "is not an index"),
        (lambda index: _said(index)[0].write_text('{"zarr_format": 3, "node_type": "group"}'), "is not an index"),
    ],
)
def test_other_stores_get_one_sentence(index: Index, change: Callable[[Index], Any], words: str) -> None:
    change(index)
    with pytest.raises(RasterError, match=words) as caught:
        open_index(index.name)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 500


@pytest.mark.parametrize("side", [5_200, 40_000])
def test_blocks_that_are_too_large_are_refused_before_they_are_read(index: Index, side: int) -> None:
    """Those of more than 256 MiB."""
    _plan(block=side, size=(10 * side, 10 * side))(index)
    for name in ARRAYS:
        last = [5] if name == "vectors" else []
        chunks = {"name": "regular", "configuration": {"chunk_shape": [side, side, *last]}}
        _array(name, shape=[side, side, *last], chunk_grid=chunks)(index)
    with pytest.raises(RasterError, match="too large blocks"):
        open_index(index.name)


def test_other_places_get_one_sentence(tmp_path: Path) -> None:
    for path, words in (
        (tmp_path / "none.zarr", "there is no index"),
        (tmp_path, "is not an index but another folder$"),
        (Path(__file__), "is not an index"),
    ):
        with pytest.raises(RasterError, match=words):
            open_index(path)


def test_an_index_that_keeps_its_blocks_reads_whole_ones_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of(9, 12)
    index = create_index(tmp_path / "a.zarr", about_of(plan), 5).keeping()
    for chunk in (0, 1, 2):
        index.write(chunk, cells_of(plan, chunk))
    assert index.missing() == [3]
    index.write(3, cells_of(plan, 3))  # one that was not there before
    assert index.missing() == []
    monkeypatch.setattr(type(index), "_array", lambda self, name: pytest.fail("it was read again"))
    for chunk, (_, cells) in enumerate(index.blocks()):
        assert np.array_equal(cells.vectors, cells_of(plan, chunk).vectors)


def test_blocks_that_are_read_are_reported(tmp_path: Path) -> None:
    plan, seen = plan_of(9, 12), list[Any]()

    class Steps(Progress):
        @contextmanager
        def __call__(self, title: str, total: int | None) -> Iterator[Any]:
            seen.append((title, total))
            yield lambda done: seen.append(done)

    index = create_index(tmp_path / "a.zarr", about_of(plan), 5)
    assert index.missing(Steps()) == [0, 1, 2, 3] and seen == [("Checking the index", 4), 1, 1, 1, 1]


def test_what_is_missing_for_an_address_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(RasterError, match=r"s3://maps/scene.zarr needs more packages .* pip install 'mgcap\[s3\]'"):
        open_index("s3://maps/scene.zarr")
