"""A raster as square pictures of 256 pixels at every scale, as maps on the web have them, read as they are asked for.

Where the raster has no overviews, coarse scales come from a thumbnail that is made once, so that they cost no more
than fine ones.
"""

from __future__ import annotations

import io
import math
import threading
from concurrent.futures import Future
from contextlib import ExitStack
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mgcap.errors import DataError
from mgcap.geo.opening import open_raster, reading
from mgcap.geo.raster import Look, read_window
from mgcap.typing import Array

if TYPE_CHECKING:
    from rasterio.io import DatasetReader

#: Side of a picture, and the longest side of a thumbnail, in pixels.
SIDE, THUMBNAIL = 256, 4096
#: Pixels of the raster that are read at once for the thumbnail.
STRIP = 1 << 24
#: What has no data.
EMPTY = 225


class _Job(NamedTuple):
    """A picture that is asked for: scale, column and row."""

    place: tuple[int, int, int]
    picture: Future[bytes]


class Pyramid:
    """The pictures of a raster.

    Args:
        path: Of the raster.
        look: Its bands and scale, as for the map.
        allow_vrt: See :func:`mgcap.geo.opening.open_raster`.
        threads: That read.
    """

    def __init__(self, path: Path, look: Look, allow_vrt: bool = False, threads: int = 3) -> None:
        self.path, self.look, self.allow_vrt = path, look, allow_vrt
        with open_raster(path, allow_vrt) as dataset:
            self.width, self.height = dataset.width, dataset.height
            overviews = bool(dataset.overviews(look.bands[0]))
        longest = max(self.width, self.height)
        #: The finest scale, where a pixel of a picture is one of the raster; at scale 0 one picture shows all.
        self.finest = max(0, math.ceil(math.log2(longest / SIDE)))
        steps = max(0, math.ceil(math.log2(longest / THUMBNAIL)))
        #: The finest scale of the thumbnail.
        self.coarse = -1 if overviews else self.finest - steps
        self._closed = threading.Event()
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._count = threads
        for _ in range(threads):
            threading.Thread(target=self._work, name="tiles", daemon=True).start()
        self._thumbnail: Future[list[Array]] = Future()
        if self.coarse >= 0:
            threading.Thread(target=self._make_thumbnail, name="thumbnail", daemon=True).start()

    def close(self) -> None:
        """Stop reading."""
        self._closed.set()
        for _ in range(self._count):
            self._jobs.put(None)

    def tile(self, z: int, x: int, y: int) -> Future[bytes]:
        """A picture as JPEG; those at the right and lower edge are smaller.

        Raises:
            DataError: If there is no such picture.
        """
        if not 0 <= z <= self.finest:
            raise DataError(f"there is no scale {z}")
        step = 1 << (self.finest - z)
        if not (0 <= x < math.ceil(self.width / step / SIDE) and 0 <= y < math.ceil(self.height / step / SIDE)):
            raise DataError("there is no such tile")
        job = _Job((z, x, y), Future())
        self._jobs.put(job)
        return job.picture

    def _work(self) -> None:
        """Read pictures with a dataset of this thread alone: GDAL's are for one thread."""
        with ExitStack() as stack:
            dataset: DatasetReader | None = None
            while (job := self._jobs.get()) is not None:
                if self._closed.is_set() or not job.picture.set_running_or_notify_cancel():
                    job.picture.cancel()
                    continue
                try:
                    if dataset is None:
                        dataset = stack.enter_context(open_raster(self.path, self.allow_vrt))
                    job.picture.set_result(self._picture(dataset, *job.place))
                except Exception as error:  # whoever asked is told
                    job.picture.set_exception(error)

    def _picture(self, dataset: DatasetReader, z: int, x: int, y: int) -> bytes:
        if z <= self.coarse:
            level = self._thumbnail.result(600)[self.coarse - z]
            pixels = level[y * SIDE : (y + 1) * SIDE, x * SIDE : (x + 1) * SIDE]
        else:
            step = 1 << (self.finest - z)
            left, top = x * SIDE * step, y * SIDE * step
            width, height = min(SIDE * step, self.width - left), min(SIDE * step, self.height - top)
            with reading(self.path):
                pixels = self._read(dataset, (left, top, width, height), step)
        return _jpeg(pixels)

    def _read(self, dataset: DatasetReader, window: tuple[int, int, int, int], step: int) -> Array:
        shape = math.ceil(window[3] / step), math.ceil(window[2] / step)
        seen, valid = read_window(dataset, self.look, *window, shape)
        pixels = (255 * seen + 0.5).astype(np.uint8)
        pixels[~valid] = EMPTY
        return pixels

    def _make_thumbnail(self) -> None:
        try:
            self._thumbnail.set_result(self._levels())
        except BaseException as error:
            self._thumbnail.set_exception(error)

    def _levels(self) -> list[Array]:
        """The thumbnail, and each scale below it by half."""
        step = 1 << (self.finest - self.coarse)
        shape = math.ceil(self.height / step), math.ceil(self.width / step)
        levels = [np.empty((*shape, 3), np.uint8)]
        high = max(1, STRIP // self.width // step) * step
        with open_raster(self.path, self.allow_vrt) as dataset, reading(self.path):
            for top in range(0, self.height, high):
                if self._closed.is_set():
                    raise DataError("the raster is not read any more")
                strip = self._read(dataset, (0, top, self.width, min(high, self.height - top)), step)
                levels[0][top // step : top // step + len(strip)] = strip
        for _ in range(self.coarse):
            levels.append(_halved(levels[-1]))
        return levels


def _halved(pixels: Array) -> Array:
    """Means of squares of two by two."""
    even = np.pad(pixels, ((0, pixels.shape[0] % 2), (0, pixels.shape[1] % 2), (0, 0)), mode="edge").astype(np.uint16)
    total = even[::2, ::2] + even[1::2, ::2] + even[::2, 1::2] + even[1::2, 1::2]
    return ((total + 2) // 4).astype(np.uint8)


def _jpeg(pixels: Array) -> bytes:
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels)).save(buffer, "JPEG", quality=88)
    return buffer.getvalue()
