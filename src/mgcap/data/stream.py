"""Images one after the other, decoded ahead of time, in batches of equal size, in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mgcap.data.images import read_image
from mgcap.data.samples import Samples, as_samples
from mgcap.errors import DataError, ImageError

#: A file, or an array: uint8, float in [0, 1] or bool, ``[H, W]``, ``[H, W, 3]`` or (tensors) ``[3, H, W]``.
Item = str | Path | np.ndarray[Any, Any] | Tensor

OnError = Callable[[int, ImageError], None]


def to_tensor(item: Item) -> Tensor:
    """One image as float32 RGB in [0, 1], ``[3, H, W]``.

    Raises:
        ImageError: With one sentence; that of a file names it.
    """
    if isinstance(item, str | Path):
        return read_image(item)
    pixels = _checked(item)
    pixels = pixels.contiguous()
    return pixels.float().div_(255) if pixels.dtype == torch.uint8 else pixels.float()  # in place: images may be large


def _checked(item: Any) -> Tensor:
    """An array as ``[3, H, W]``, of bytes, truth values or floats in [0, 1]."""
    try:
        pixels = item if isinstance(item, Tensor) else _native(np.asarray(item))
        if pixels.ndim == 2:
            pixels = pixels[..., None].expand(-1, -1, 3)
        if pixels.ndim != 3 or (pixels.shape[0] != 3 and pixels.shape[-1] != 3):
            raise ImageError(f"an image must be [H, W], [H, W, 3] or [3, H, W], not {list(pixels.shape)}")
        if not pixels.numel():
            raise ImageError(f"an image of shape {list(pixels.shape)} has no pixels")
        if pixels.shape[0] != 3 or (not isinstance(item, Tensor) and pixels.shape[-1] == 3):
            pixels = pixels.permute(2, 0, 1)
        if pixels.dtype not in (torch.uint8, torch.bool):
            _check_values(pixels)
    except ImageError:
        raise
    except Exception as error:  # numpy and torch raise whatever they like on what is not an image
        raise ImageError(f"an image must be a file or an array of numbers, not {type(item).__name__}") from error
    return pixels


def _native(array: np.ndarray[Any, Any]) -> Tensor:
    """An array that torch may not take as it is: read-only, flipped or with its bytes the other way round."""
    if array.dtype.kind not in "buif":
        kind = "objects" if array.dtype.kind == "O" else str(array.dtype)
        raise ImageError(f"an image must be a file or an array of numbers, not of {kind}")
    if array.dtype.kind in "ui" and array.dtype != np.uint8:
        raise _wrong_integers(array.dtype)
    array = np.require(array, array.dtype.newbyteorder("="), "C")
    with np.errstate(over="ignore"):
        array = array if array.dtype in (np.uint8, np.bool_) else array.astype(np.float32, copy=False)
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def _check_values(pixels: Tensor) -> None:
    if not pixels.is_floating_point():
        raise _wrong_integers(pixels.dtype)
    if not bool(torch.isfinite(pixels).all()):
        raise ImageError("the image has pixels that are not finite")
    low, high = float(pixels.min()), float(pixels.max())
    if low < -1e-3 or high > 1 + 1e-3:
        raise ImageError(
            f"a float image must lie in [0, 1], not from {low:.4g} to {high:.4g}; divide it by its white value"
        )


def _wrong_integers(dtype: object) -> ImageError:
    name = str(dtype).removeprefix("torch.")
    return ImageError(f"an image of integers must be of uint8, not {name}; divide it by its white value")


def image_batches(
    items: Sequence[Item], batch: int, on_error: OnError, workers: int = 2, order: Iterable[int] | None = None
) -> Iterator[tuple[list[int], Tensor]]:
    """Yield (indices, ``[B, 3, H, W]``), in order; decoding runs ahead by a bounded number of images.

    Args:
        items: Images.
        batch: The most images at once; a batch ends early where the size changes.
        on_error: Is told of each image that cannot be read; it is skipped.
        workers: Threads that decode.
        order: Indices of the items to read; all by default.
    """
    ahead: deque[tuple[int, Future[Tensor]]] = deque()
    indices: list[int] = []
    images: list[Tensor] = []
    with ThreadPoolExecutor(workers) as pool:
        try:
            upcoming = iter(range(len(items)) if order is None else order)
            while True:
                while len(ahead) < 2 * batch and (index := next(upcoming, None)) is not None:
                    ahead.append((index, pool.submit(to_tensor, items[index])))
                if not ahead:
                    break
                index, future = ahead.popleft()
                try:
                    image = future.result()
                except ImageError as error:
                    on_error(index, error)
                    continue
                if images and (image.shape != images[0].shape or len(images) == batch):
                    yield indices, _stacked(images)
                    indices, images = [], []
                indices.append(index)
                images.append(image)
            if images:
                yield indices, _stacked(images)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _stacked(images: Sequence[Tensor]) -> Tensor:
    return torch.stack(list(images)) if len(images) > 1 else images[0].unsqueeze(0)


def check_items(items: Any) -> Sequence[Item]:
    """Accept a list of files or arrays, one array of images, or a dataset; refuse a single image given by mistake."""
    if isinstance(items, str | Path):
        raise DataError("give a list of images, not a single path")
    if isinstance(items, dict):
        raise DataError("give a list of samples, not a single one")
    try:
        items = as_samples(items) or (items if hasattr(items, "__len__") else list(items))
        count = len(items)
    except TypeError as error:
        raise DataError(f"give a list of images, not {type(items).__name__}") from error
    if count == 0:
        raise DataError("no images were given")
    checked: Sequence[Item] = items
    return checked


def check_training(items: Sequence[Item]) -> None:
    """Refuse training images before anything is computed: an array that is no image, or files of which none is.

    Files that cannot be read are skipped later, so only the first that can be read is decoded here; so is the first
    sample of a dataset.
    """
    if isinstance(items, Samples):
        to_tensor(items[0])
        return
    readable = False
    reason: ImageError | None = None
    for index, item in enumerate(items):
        is_file = isinstance(item, str | Path)
        if is_file and readable:
            continue
        try:
            to_tensor(item) if is_file else _checked(item)
            readable = True
        except ImageError as error:
            if not is_file:
                raise ImageError(f"images[{index}]: {error}") from error
            reason = reason or error
    if not readable:
        raise DataError(f"none of the {len(items)} images can be read: {reason}")
