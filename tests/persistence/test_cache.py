from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import save_file

from mgcap.errors import DataError
from mgcap.persistence.cache import FeatureCache, RowStore, content_key, pack, unpack


def _rows(count: int, length: int = 5, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, length, generator=torch.Generator().manual_seed(seed))


def _keys(*numbers: int) -> list[bytes]:
    return [bytes([number]) * 32 for number in numbers]


@settings(deadline=None, max_examples=60)
@given(st.floats(-60, 60), st.integers(0, 99))
def test_half_precision_with_a_scale_keeps_eleven_bits_at_any_size(exponent: float, seed: int) -> None:
    rows = _rows(3, 50, seed) * 2.0**exponent
    back = unpack(*pack(rows))
    assert ((back - rows).abs() <= rows.abs() * 2**-11 + rows.abs().amax(1, keepdim=True) * 2**-38).all()


def test_packing_zero_and_what_is_not_finite() -> None:
    assert torch.equal(unpack(*pack(torch.zeros(2, 3))), torch.zeros(2, 3))
    with pytest.raises(ValueError, match="finite"):
        pack(torch.tensor([[1.0, float("nan")]]))


def test_rows_come_back_also_in_another_process_and_order(tmp_path: Path) -> None:
    store = RowStore(tmp_path)
    rows = _rows(5)
    store.add(_keys(1, 2, 3), rows[:3])
    store.add(_keys(4, 5), rows[3:])
    again = RowStore(tmp_path)
    assert len(again) == 5 and _keys(9)[0] not in again
    assert torch.equal(again.read(_keys(5, 1, 3)), unpack(*pack(rows))[[4, 0, 2]])
    with pytest.raises(KeyError):
        again.read(_keys(9))


def test_rows_that_another_process_wrote_are_found_on_refresh(tmp_path: Path) -> None:
    one, other = RowStore(tmp_path), RowStore(tmp_path)
    other.add(_keys(1), _rows(1))
    assert _keys(1)[0] not in one
    one.refresh()
    assert _keys(1)[0] in one


def test_what_a_killed_process_left_is_no_row(tmp_path: Path) -> None:
    store = RowStore(tmp_path)
    store.add(_keys(1, 2), _rows(2))
    (whole,) = tmp_path.glob("*.safetensors")
    (tmp_path / ".half.safetensors.x").write_bytes(whole.read_bytes()[:100])
    (tmp_path / "truncated.safetensors").write_bytes(whole.read_bytes()[:-10])
    (tmp_path / "empty.safetensors").write_bytes(b"")
    save_file({"keys": torch.zeros(3, 32, dtype=torch.uint8), "rows": torch.zeros(2, 5)}, tmp_path / "odd.safetensors")
    again = RowStore(tmp_path)
    assert len(again) == 2
    assert [p.name for p in tmp_path.glob("*.safetensors")] == [whole.name]


def test_a_full_disk_is_said_once_and_rows_stay_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    cache = FeatureCache(tmp_path / "features", say=said.append)
    stores = [cache.store({"crop": crop}) for crop in (1.0, 0.9)]
    for store in stores:
        store.add(_keys(7), _rows(1))

    def full(*args: object, **options: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("mgcap.persistence.cache.save_file", full)
    for store in stores:
        store.add(_keys(1), _rows(1))
        assert store.read(_keys(1, 7)).shape == (2, 5)  # what was written before is still there
    assert len(said) == 1 and "No space left" in said[0]
    assert len(list((tmp_path / "features").rglob("*.safetensors*"))) == 2


def test_a_root_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "features").write_text("a file")
    said: list[str] = []
    store = FeatureCache(tmp_path / "features", say=said.append).store({})
    store.add(_keys(1), _rows(1))
    assert len(store) == 1 and len(said) == 1


def test_a_chunk_is_claimed_by_one_only(tmp_path: Path) -> None:
    one, other = RowStore(tmp_path), RowStore(tmp_path)
    with one.claim(b"chunk") as ours, other.claim(b"chunk") as theirs, other.claim(b"next") as free:
        assert ours and not theirs and free
    with other.claim(b"chunk") as now:
        assert now
    assert not list(tmp_path.glob("*.lock"))


def test_keys_follow_the_content(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"x" * 100)
    (tmp_path / "b.jpg").write_bytes(b"x" * 100)
    (tmp_path / "c.png").write_bytes(b"y" * 100)
    a, b, c = (content_key(tmp_path / name) for name in ("a.png", "b.jpg", "c.png"))
    assert a == b != c and content_key(tmp_path / "none.png") is None
    array = np.zeros((4, 4, 3), np.uint8)
    assert content_key(array) == content_key(array.copy()) != content_key(np.zeros((3, 4, 4), np.uint8))
    assert content_key(array) != content_key(torch.from_numpy(array)) != content_key(array.astype(np.float32))


def test_info_and_prune(tmp_path: Path) -> None:
    cache = FeatureCache(tmp_path)
    for number, crop in enumerate((1.0, 0.9, 0.8)):
        store = cache.store({"crop": crop})
        store.add(_keys(1, 2), _rows(2, 1000))
        assert store.folder
        os.utime(store.folder / "recipe.json", (time.time() - 86400 * number,) * 2)
    infos = cache.info()
    assert [info.recipe["crop"] for info in infos] == [1.0, 0.9, 0.8]
    assert all(info.images == 2 and info.bytes > 4000 for info in infos)
    assert [info.recipe["crop"] for info in cache.prune(older_than_days=1.5)] == [0.8]
    assert [info.recipe["crop"] for info in cache.prune(keep_bytes=infos[0].bytes)] == [0.9]
    assert len(cache.prune()) == 1 and cache.info() == []


def _tensors_hash(tensors: dict[str, torch.Tensor]) -> str:
    """What a stranger would write as the checksum of a chunk, worked out without the package."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)};".encode())
        digest.update(tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _rewrite(path: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    """Change a chunk and give it the checksum of what it holds then."""
    with safe_open(path, "pt") as file:
        tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
        assert file.metadata()["sha256"] == _tensors_hash(tensors)
    change(tensors)
    save_file(tensors, path, {"sha256": _tensors_hash(tensors)})


def test_any_flipped_bit_is_noticed_and_the_row_is_asked_for_again(tmp_path: Path) -> None:
    """All bits: length, header, metadata, keys, scale and rows."""
    rows, keys = _rows(2, 3), _keys(1, 2)
    RowStore(tmp_path).add(keys, rows)
    (path,) = tmp_path.glob("*.safetensors")
    whole, expected, found = path.read_bytes(), unpack(*pack(rows)), 0
    for place in range(8 * len(whole)):
        damaged = bytearray(whole)
        damaged[place // 8] ^= 1 << place % 8
        path.write_bytes(bytes(damaged))
        store = RowStore(tmp_path)
        there = [key in store for key in keys]
        assert there in ([True, True], [False, False])
        assert path.exists() == there[0]
        if there[0]:
            assert torch.equal(store.read(keys), expected)
            found += 1
    assert found < 80  # a capital in the escape of a header that says the same, say


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.update(rows=t["rows"].float()),
        lambda t: t.update(rows=t["rows"].view(torch.int16)),
        lambda t: t.update(scale=t["scale"].double()),
        lambda t: t.update(keys=t["keys"].view(torch.int8)),
        lambda t: t.update(rows=t["rows"][:, :3].contiguous()),
        lambda t: t.update(rows=t["rows"][:1].clone()),
        lambda t: t.update(rows=t["rows"].flatten()),
        lambda t: t.update(rows=t["rows"][:, :0].clone()),
        lambda t: t.update(scale=t["scale"][:1].clone()),
        lambda t: t.update(scale=t["scale"].reshape(2, 1)),
        lambda t: t.update(keys=t["keys"][:, :16].contiguous()),
        lambda t: t.update(keys=t["keys"].flatten()),
        lambda t: t.update({name: tensor[:0].clone() for name, tensor in t.items()}),
        lambda t: t["scale"].fill_(float("nan")),
        lambda t: t["scale"].fill_(float("inf")),
        lambda t: t["rows"][1, 2].fill_(float("nan")),
        lambda t: t["rows"][0, 0].fill_(float("-inf")),
        lambda t: t.pop("scale"),
        lambda t: t.pop("keys"),
        lambda t: t.update(extra=torch.zeros(1)),
        lambda t: t["keys"].zero_(),
    ],
)
def test_a_crafted_chunk_is_removed_whatever_its_checksum(tmp_path: Path, change) -> None:
    store = RowStore(tmp_path)
    store.add(_keys(3, 4, 5), _rows(3))
    store.add(_keys(1, 2), _rows(2))
    path = next(p for p in tmp_path.glob("*.safetensors") if p.stat().st_size == min(_sizes(tmp_path)))
    _rewrite(path, change)
    again = RowStore(tmp_path)
    assert [key in again for key in _keys(1, 2, 3)] == [False, False, True]
    assert not path.exists()
    again.add(_keys(1, 2), _rows(2))
    assert torch.equal(RowStore(tmp_path).read(_keys(2, 1)), unpack(*pack(_rows(2)))[[1, 0]])


def _sizes(folder: Path) -> list[int]:
    return [p.stat().st_size for p in folder.glob("*.safetensors")]


def test_chunks_of_the_release_before_have_no_checksum_and_are_computed_again(tmp_path: Path) -> None:
    RowStore(tmp_path).add(_keys(1), _rows(1))
    (path,) = tmp_path.glob("*.safetensors")
    with safe_open(path, "pt") as file:
        tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    for metadata in (None, {"sha256": ""}, {"sha1": "0"}):
        save_file(tensors, path, metadata)
        assert _keys(1)[0] not in RowStore(tmp_path) and not path.exists()


def test_rows_of_another_width_go(tmp_path: Path) -> None:
    RowStore(tmp_path).add(_keys(1, 2), _rows(2, 7))
    assert len(RowStore(tmp_path, width=5)) == 0 and not list(tmp_path.iterdir())  # the width is known
    RowStore(tmp_path).add(_keys(1, 2), _rows(2, 7))
    store = RowStore(tmp_path)
    assert len(store) == 2
    store.add(_keys(3), _rows(1, 5))  # it is not, until rows are computed
    assert len(store) == 1 and store.read(_keys(3)).shape == (1, 5)


def test_a_folder_with_the_name_of_a_chunk(tmp_path: Path) -> None:
    RowStore(tmp_path).add(_keys(1), _rows(1))
    (path,) = tmp_path.glob("*.safetensors")
    path.unlink()
    (path / "inner").mkdir(parents=True)
    (tmp_path / "x.safetensors").mkdir()
    store = RowStore(tmp_path)
    assert _keys(1)[0] not in store
    store.refresh()
    store.add(_keys(1), _rows(1))
    assert store.read(_keys(1)).shape == (1, 5)


def test_what_is_damaged_or_removed_between_asking_and_reading(tmp_path: Path) -> None:
    store = RowStore(tmp_path)
    store.add(_keys(1), _rows(1))
    late = RowStore(tmp_path)
    (path,) = tmp_path.glob("*.safetensors")
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(DataError, match="damaged or removed"):
        late.read(_keys(1))
    assert _keys(1)[0] not in late
    path.write_bytes(whole)
    late.refresh()
    assert _keys(1)[0] in late
    path.unlink()
    again = RowStore(tmp_path)
    assert _keys(1)[0] not in again


def test_a_chunk_is_read_in_full_when_a_row_is_asked_for_and_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    RowStore(tmp_path).add(_keys(1, 2), _rows(2))
    RowStore(tmp_path).add(_keys(3), _rows(1))
    looked: list[int] = []

    def hashed(tensors: dict[str, torch.Tensor]) -> str:
        looked.append(len(tensors["rows"]))
        return _tensors_hash(tensors)

    monkeypatch.setattr("mgcap.persistence.chunks.state_hash", hashed)
    monkeypatch.setattr("mgcap.persistence.cache.OPEN_FILES", 1)
    store = RowStore(tmp_path)
    assert len(store) == 3 and looked == []
    for _ in range(3):
        assert _keys(1)[0] in store and _keys(3)[0] in store
        store.read(_keys(2, 3, 1))
    assert looked == [2, 1]


def test_rows_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="not finite"):
        RowStore(tmp_path).add(_keys(1), torch.full((1, 5), float("inf")))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("text", ["", "{", "[1]", "null", '{"crop": "x"}', "[" * 100_000, "\udcff"])
def test_a_damaged_recipe_is_listed_pruned_and_written_anew(tmp_path: Path, text: str) -> None:
    store = FeatureCache(tmp_path).store({"crop": 1.0})
    store.add(_keys(1), _rows(1))
    assert store.folder
    (store.folder / "recipe.json").write_bytes(text.encode(errors="surrogateescape"))
    (info,) = FeatureCache(tmp_path).info()
    assert info.recipe == {} and info.images == 1
    again = FeatureCache(tmp_path)
    assert _keys(1)[0] in again.store({"crop": 1.0})
    assert [info.recipe["crop"] for info in again.info()] == [1.0]
    (store.folder / "recipe.json").write_bytes(text.encode(errors="surrogateescape"))
    assert len(again.prune()) == 1 and not store.folder.exists()
