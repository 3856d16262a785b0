from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from mgcap.data.cache import FeatureCache, RowStore, content_key, pack, unpack


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

    monkeypatch.setattr("mgcap.data.cache.save_file", full)
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
