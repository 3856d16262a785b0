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
from mgcap.errors import DataError, ImageError

#: A file, or an array: uint8 or float in [0, 1], ``[H, W]``, ``[H, W, 3]`` or (tensors) ``[3, H, W]``.
Item = str | Path | np.ndarray[Any, Any] | Tensor

OnError = Callable[[int, ImageError], None]


def to_tensor(item: Item) -> Tensor:
    """One image as float32 RGB in [0, 1], ``[3, H, W]``."""
    if isinstance(item, str | Path):
        return read_image(item)
    array = torch.as_tensor(item)
    if array.ndim == 2:
        array = array.unsqueeze(-1).expand(-1, -1, 3)
    if array.ndim != 3 or (array.shape[0] != 3 and array.shape[-1] != 3):
        raise ImageError(f"an image must be [H, W], [H, W, 3] or [3, H, W], not {list(array.shape)}")
    if array.shape[0] != 3 or (isinstance(item, np.ndarray) and array.shape[-1] == 3):
        array = array.permute(2, 0, 1)
    array = array.float() / 255 if array.dtype == torch.uint8 else array.float()
    if not bool(torch.isfinite(array).all()):
        raise ImageError("the image has pixels that are not finite")
    if float(array.min()) < -1e-3 or float(array.max()) > 1 + 1e-3:
        raise ImageError("a float image must lie in [0, 1]; divide it by its white value")
    return array.contiguous()


def image_batches(
    items: Sequence[Item], batch: int, on_error: OnError, workers: int = 2, order: Iterable[int] | None = None
) -> Iterator[tuple[list[int], Tensor]]:
    """Yield (indices, ``[B, 3, H, W]``), in order; decoding runs ahead by a bounded number of images.

    Args:
        items: Images.
        batch: The most images at once; a batch ends early where the size changes.
        on_error: Is told of each image that cannot be read; it is passed over.
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
                    yield indices, torch.stack(images)
                    indices, images = [], []
                indices.append(index)
                images.append(image)
            if images:
                yield indices, torch.stack(images)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def check_items(items: Any) -> Sequence[Item]:
    """Accept a list of files or arrays, or one array of images; refuse a single file given by mistake."""
    if isinstance(items, str | Path):
        raise DataError("give a list of images, not a single path")
    if not hasattr(items, "__len__"):
        items = list(items)
    if len(items) == 0:
        raise DataError("no images were given")
    checked: Sequence[Item] = items
    return checked
