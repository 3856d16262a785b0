from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from mgcap.data.stream import check_items, image_batches, to_tensor
from mgcap.errors import DataError, ImageError


def test_arrays_and_tensors() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (9, 12, 3), dtype=np.uint8)
    expected = torch.from_numpy(pixels).permute(2, 0, 1).float() / 255
    for item in (pixels, (pixels / 255).astype(np.float32), expected, torch.from_numpy(pixels)):
        assert torch.allclose(to_tensor(item), expected, atol=1e-6)
    assert to_tensor(pixels[..., 0]).shape == (3, 9, 12)
    assert to_tensor(np.zeros((3, 5, 3), np.uint8)).shape == (3, 3, 5)  # numpy images end in colour
    for wrong, sentence in (
        (np.zeros((9, 12, 4)), r"\[H, W, 3\]"),
        (np.full((9, 12, 3), np.nan), "not finite"),
        (np.full((9, 12, 3), 200.0), r"\[0, 1\]"),
    ):
        with pytest.raises(ImageError, match=sentence):
            to_tensor(wrong)


def test_order_sizes_and_errors(tmp_path: Path) -> None:
    sizes = [16, 16, 16, 20, 20, 16, 16, 16, 16, 16]
    for i, size in enumerate(sizes):
        Image.new("RGB", (size, size), (i, i, i)).save(tmp_path / f"{i}.png")
    (tmp_path / "4.png").write_text("broken")
    errors: list[int] = []
    batches = list(image_batches([tmp_path / f"{i}.png" for i in range(10)], 4, lambda i, e: errors.append(i)))
    assert errors == [4]
    assert [indices for indices, _ in batches] == [[0, 1, 2], [3], [5, 6, 7, 8], [9]]
    for indices, images in batches:
        assert images.shape[0] == len(indices)
        assert (images[:, 0, 0, 0] * 255).round().tolist() == indices


def test_decoding_runs_ahead_by_a_bounded_number() -> None:
    asked: list[int] = []

    class Items(list):
        def __getitem__(self, index):
            asked.append(index)
            return np.zeros((8, 8, 3), np.uint8)

    stream = image_batches(Items(range(1000)), 4, lambda i, e: None)
    next(stream)
    assert len(asked) < 20
    stream.close()


def test_checks() -> None:
    for wrong in ("photo.jpg", Path("photo.jpg")):
        with pytest.raises(DataError, match="a list"):
            check_items(wrong)
    with pytest.raises(DataError, match="no images"):
        check_items([])
    assert check_items(x for x in ("a", "b")) == ["a", "b"]
