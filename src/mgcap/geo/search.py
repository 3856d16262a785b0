"""Places in rasters that look like an image or another place, however rotated, by the indexes of the rasters.

Descriptors know quarter turns (or whatever rotations a model has) by themselves. For angles between them the image is
looked at several times, rotated a little further each time; a cell counts by the view that it is most like.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import numpy as np
import torch
from torch import Tensor

from mgcap.data.decoding import decode_image
from mgcap.data.images import to_floats
from mgcap.data.limits import MIN_SIDE
from mgcap.data.pixels import rgb_of
from mgcap.data.stream import Item, to_tensor
from mgcap.errors import ImageError, RasterError
from mgcap.geo.index import Index
from mgcap.geo.nearest import Gallery, Near, missing_blocks
from mgcap.geo.sources import angles_of, coordinates_of, cut_tile, located
from mgcap.inference.descriptors import stream_answers
from mgcap.inference.fingerprints import descriptor_fingerprint
from mgcap.inference.projection import projection_for
from mgcap.runtime import Progress, silent
from mgcap.typing import Array
from mgcap.views import sample_frames

if TYPE_CHECKING:
    from mgcap.classifier import SceneClassifier

#: The most degrees between two views of an image.
STEP = 15.0
#: The largest side of such a view: it is looked at in a few hundred pixels.
LARGEST = 512
#: The most hits that may be asked for.
MOST_HITS = 100_000


@dataclass(frozen=True)
class Hit:
    """A cell that is like what was searched for.

    Attributes:
        rank: From 1.
        score: Cosine of the descriptors: 1 for the same.
        index: The index that it is of.
        row: Of the cell.
        column: Of the cell.
        angle: The canonical angle in degrees.
        x: Middle of its tile in the raster's coordinates.
        y: The same.
    """

    rank: int
    score: float
    index: str
    row: int
    column: int
    angle: float
    x: float
    y: float


@dataclass(frozen=True)
class Found:
    """What a search found.

    Attributes:
        hits: The best first.
        indexes: That were searched, open.
        query: What was searched for, ``[h, w, 3]`` in [0, 1]; None for a place whose raster is not there.
        title: What it is called.
    """

    hits: list[Hit]
    indexes: list[Index]
    query: Array | None
    title: str


def search(
    indexes: Gallery | Sequence[str | Path | Index],
    *,
    like: Item | None = None,
    at: tuple[float, float] | None = None,
    crs: str | None = None,
    classifier: SceneClassifier | None = None,
    top: int = 50,
    thin: bool = True,
    progress: Progress = silent,
) -> Found:
    """Find the cells that are most like an image or a place.

    Args:
        indexes: What ``mgcap index`` made, all by the same model; a gallery that is open for many searches.
        like: An image file or an array that shows as much ground as a tile; needs ``classifier``.
        at: A place (x, y) instead: the cell there counts, which is the first hit.
        crs: Coordinate system of ``at``, as ``EPSG:4326`` for longitude and latitude; by default that of the raster.
        classifier: The model of the indexes. Without it a place is not looked at at further angles.
        top: How many cells.
        thin: Leave out cells whose tile overlaps that of a better one.
        progress: Where to report.

    Raises:
        RasterError: With one sentence, if the indexes or the place cannot be used.
    """
    if (like is None) == (at is None):
        raise RasterError("give either `like` or `at`")
    if not 1 <= top <= MOST_HITS:
        raise RasterError(f"`top` takes 1 to {MOST_HITS}, not {top}")
    if crs is not None and at is None:
        raise RasterError("`crs` is that of `at`, which is not given")
    if like is not None and classifier is None:
        raise RasterError("`like` needs `classifier`, the model of the indexes")
    gallery = indexes if isinstance(indexes, Gallery) else Gallery.open(indexes, progress)
    first = gallery.indexes[0]
    for index in gallery.indexes:
        if missing := missing_blocks(index):
            progress.say(f"{index.name} lacks {missing} of {index.plan.chunks} blocks, which are not searched")
    if classifier is not None:
        check_descriptor(first, classifier)
    if like is not None:
        image: Array | None = _square(like, first, progress)
        title = str(like) if isinstance(like, str | Path) else "an image"
        queries = torch.zeros(0, gallery.length)
    else:
        assert at is not None
        number, row, column = located(gallery.indexes, at, crs)
        index = gallery.indexes[number]
        image, title = cut_tile(index, row, column), f"{at[0]:.10g}, {at[1]:.10g}"
        queries = _own(index, row, column)
        if classifier is not None and image is None:
            progress.say(f"the raster of {index.name} is not there, so the place is searched for without rotations")
    if classifier is not None and image is not None:
        queries = torch.cat((queries, views_of(classifier, image)))
    found = gallery.best(queries, top, thin)
    return Found(_hits(gallery.indexes, found), gallery.indexes, image, title)


def check_descriptor(index: Index, classifier: SceneClassifier) -> None:
    """See that a model describes images as an index was made.

    Raises:
        RasterError: If it does not.
    """
    model = classifier.model_
    if index.about.descriptor != descriptor_fingerprint(model):
        raise RasterError(f"{index.name} was made with other descriptors than this model's; give its `model`")
    if index.about.projection != projection_for(model).fingerprint:
        raise RasterError(f"{index.name} was made with another projection than this version's; make it again")


def _square(like: Item, index: Index, progress: Progress) -> Array:
    """The middle of an image, ``[side, side, 3]`` in [0, 1]."""
    pixels = _pixels(like, index)
    high, wide = pixels.shape[-2:]
    side = min(high, wide)
    if side < MIN_SIDE:
        raise RasterError(f"`like` is {wide} x {high} pixels; at least {MIN_SIDE} x {MIN_SIDE} are needed")
    rows, columns = index.plan.shape
    if max(side / rows, side / columns) > 2:
        progress.say(
            f"the image is {wide} x {high} pixels, the tiles of the index are {columns} x {rows}; "
            "it should show as much ground as one tile"
        )
    top, left = (high - side) // 2, (wide - side) // 2
    image: Array = pixels[:, top : top + side, left : left + side].permute(1, 2, 0).numpy()
    return image


def _pixels(like: Item, index: Index) -> Tensor:
    """An image ``[3, H, W]``; one that is deeper than bytes is read as the raster was, if that is, too."""
    black, white = index.plan.black, index.plan.white
    if not isinstance(like, str | Path) or (black, white) == (0, 255):
        return to_tensor(like)
    values = decode_image(like)
    if values.dtype.kind in "uif" and values.dtype != np.uint8:
        values = ((values.astype(np.float32) - black) / (white - black)).clip(0, 1)
    return to_floats(rgb_of(values, like))


def views_of(classifier: SceneClassifier, image: Array) -> Tensor:
    """Vectors ``[n, p]`` of an image at angles between those of the model."""
    model = classifier.model_
    between = 360.0 / model.config.rotations
    count = math.ceil(between / STEP)
    angles = [between * number / count for number in range(1, count)]
    pixels = torch.from_numpy(np.ascontiguousarray(image)).permute(2, 0, 1)[None].float()
    side = min(max(pixels.shape[-2:]), LARGEST)
    rotated = sample_frames(pixels, angles, side, 1.0, "mirror")[0].clamp(0, 1) if angles else pixels[:0]
    views = [view.permute(1, 2, 0).numpy() for view in (pixels[0], *rotated)]
    answers = [answer for _, answer in stream_answers(model, classifier.engine_, views, _refuse)]
    return projection_for(model)(torch.cat([answer.descriptors.float().cpu() for answer in answers]))


def _refuse(number: int, error: ImageError) -> NoReturn:
    raise error


def _own(index: Index, row: int, column: int) -> Tensor:
    """The vector of a cell."""
    block = index.plan.block
    across = math.ceil(index.plan.grid.columns / block)
    cells = index.read(row // block * across + column // block)
    place = row % block, column % block
    if not cells.valid[place]:
        raise RasterError(f"{index.name} has no data at `at`")
    return torch.from_numpy(cells.vectors[place])[None].float()


def _hits(indexes: Sequence[Index], found: Sequence[Near]) -> list[Hit]:
    hits: dict[int, Hit] = {}
    for number, index in enumerate(indexes):
        ranks = [rank for rank, near in enumerate(found, 1) if near.number == number]
        rows, columns = (
            np.array([getattr(found[rank - 1], name) for rank in ranks], int) for name in ("row", "column")
        )
        angles = angles_of(index, rows, columns)
        for rank, angle, (x, y) in zip(ranks, angles, coordinates_of(index, rows, columns), strict=True):
            _, row, column, score = found[rank - 1]
            hits[rank] = Hit(rank, score, index.name, row, column, float(angle), float(x), float(y))
    return [hits[rank] for rank in sorted(hits)]
