from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from mgcap.classifier import SceneClassifier
from mgcap.data.stream import check_items, check_training, image_batches, to_tensor
from mgcap.errors import DataError, ImageError
from tests.conftest import TINY


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


NO_IMAGES = [
    (None, "a file or an array of numbers, not of objects"),
    (np.array([[object()] * 8] * 8), "not of objects"),
    (object(), "a file or an array of numbers"),
    ([[1, 2], [3]], "a file or an array of numbers"),
    (np.full((8, 8), "x"), "not of <U1"),
    (np.zeros((8, 8, 3), complex), "not of complex128"),
    ("none.png", "there is no file none.png"),
    (np.zeros((0, 9, 3)), "has no pixels"),
    (np.zeros((9, 0), np.uint8), "has no pixels"),
    (torch.zeros(3, 0, 9), "has no pixels"),
    (np.full((9, 12, 3), 200.0), r"must lie in \[0, 1\], not from 200 to 200; divide it"),
    (np.full((9, 12, 3), 1e300), "not finite"),
    (np.zeros((9, 12, 3), np.uint16), "must be of uint8, not uint16; divide it"),
    (np.ones((9, 12, 3), np.int32), "must be of uint8, not int32"),
    (torch.ones(3, 9, 12, dtype=torch.int64), "must be of uint8, not int64"),
    (torch.ones(3, 9, 12, dtype=torch.uint16), "must be of uint8, not uint16"),
    (torch.ones(3, 9, 12, dtype=torch.complex64), "must be of uint8|array of numbers"),
    (np.zeros((9, 12, 12)), r"not \[9, 12, 12\]"),
    (np.zeros((1, 9, 12, 3)), r"not \[1, 9, 12, 3\]"),
    (np.float64(3), r"not \[\]"),
]


@pytest.mark.parametrize(("item", "sentence"), NO_IMAGES)
def test_what_is_no_image(item: object, sentence: str) -> None:
    with pytest.raises(ImageError, match=sentence) as caught:
        to_tensor(item)  # type: ignore[arg-type]
    assert str(caught.value).isprintable()
    if not isinstance(item, str):
        with pytest.raises(ImageError, match=rf"images\[1\]: .*{sentence}"):
            check_training([np.zeros((8, 8, 3), np.uint8), item])  # type: ignore[list-item]


def test_arrays_that_torch_does_not_take_as_they_are() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (9, 12, 3), dtype=np.uint8)
    floats = (pixels / 255).astype(np.float32)
    expected = torch.from_numpy(pixels).permute(2, 0, 1).float() / 255
    closed = pixels.copy()
    closed.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(to_tensor(closed), expected)
    assert torch.equal(to_tensor(np.rot90(pixels)), expected.rot90(1, (1, 2)))
    assert torch.equal(to_tensor(pixels[:, ::-1]), expected.flip(2))
    assert torch.allclose(to_tensor(floats.astype(">f4")), expected, atol=1e-6)
    assert torch.allclose(to_tensor(floats.astype(np.float64)), expected, atol=1e-6)
    truth = pixels[..., 0] > 100
    assert torch.equal(to_tensor(truth), torch.from_numpy(truth).float().expand(3, -1, -1))


def test_training_needs_an_image_that_can_be_read(tmp_path: Path) -> None:
    Image.new("RGB", (16, 16)).save(tmp_path / "good.png")
    bad = [tmp_path / f"{i}.png" for i in range(3)]
    with pytest.raises(DataError, match=r"none of the 3 images can be read: there is no file .*0\.png"):
        check_training(bad)
    check_training([*bad, tmp_path / "good.png"])


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
    for wrong in (None, 5, np.float32(3), np.zeros(())):
        with pytest.raises(DataError, match="give a list of images"):
            check_items(wrong)
    assert check_items(x for x in ("a", "b")) == ["a", "b"]


def test_fit_says_what_is_wrong_with_an_image(tmp_path: Path) -> None:
    classifier = SceneClassifier(**{**TINY, "cache": False})
    good = np.zeros((64, 64, 3), np.uint8)
    with pytest.raises(ImageError, match=r"images\[1\]: an image of integers must be of uint8, not uint16"):
        classifier.fit([good, good.astype(np.uint16)], ["a", "b"])
    with pytest.raises(ImageError, match=r"images\[0\]: an image must be .* not \[64, 64, 12\]"):
        classifier.fit(np.zeros((2, 64, 64, 12)), ["a", "b"])
    with pytest.raises(DataError, match="none of the 2 images can be read: there is no file"):
        classifier.fit([tmp_path / "a.png", tmp_path / "b.png"], ["a", "b"])
