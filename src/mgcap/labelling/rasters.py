"""Teaching from rasters and labels that somebody drew on them, in any vector file."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from mgcap.data.imagery import Imagery
from mgcap.errors import DataError, RasterError
from mgcap.geo.earth import on_earth
from mgcap.geo.index import Index
from mgcap.geo.indexing import fill_index
from mgcap.geo.labels import (
    Labelled,
    cells_of_index,
    classes_in,
    label_cells,
    left_out_of,
    none_labelled,
    summed,
    together,
)
from mgcap.geo.plan import chosen_options, parse_tile
from mgcap.geo.sources import crs_of, cut_tile
from mgcap.geo.vectors import Vectors, read_vectors, text_of
from mgcap.geo.work import Workers, compute_here
from mgcap.inference.examples import Examples, joined
from mgcap.labelling.checks import check_block, check_together
from mgcap.labelling.learner import BLOCK_TILES
from mgcap.labelling.opened import open_for
from mgcap.labelling.pool import places_of, tile_side
from mgcap.labelling.teaching import Look, Taught, teach
from mgcap.runtime import Progress, silent
from mgcap.typing import Array

if TYPE_CHECKING:
    from mgcap.classifier import SceneClassifier

#: How labels that are in no file are called.
_TABLE = "the table of labels"


@dataclass(frozen=True)
class Drawn:
    """What labels say of rasters.

    Attributes:
        examples: Cells with their vectors.
        classes: Names of the classes.
        labelled: For each raster which of its cells have a label, and what was left out.
        indexes: Of the rasters.
        look: Finds the pictures of examples.
        imagery: What the rasters are like.
        files: Names of the files of labels, without folders.
    """

    examples: Examples
    classes: tuple[str, ...]
    labelled: tuple[Labelled, ...]
    indexes: tuple[Index, ...]
    look: Look
    imagery: Imagery
    files: tuple[str, ...] = ()

    @property
    def left_out(self) -> dict[str, int]:
        """How much has no label on any raster, by reason."""
        return left_out_of(self.labelled)

    @property
    def rasters(self) -> list[str]:
        """Names of the rasters, without folders."""
        return [Path(index.plan.raster).name for index in self.indexes]

    @property
    def unit(self) -> str:
        """Of the places."""
        return "m" if on_earth(crs_of(self.indexes[0])) else "pixels"


def fit_raster(
    rasters: str | Path | Sequence[str | Path],
    labels: Any,
    field: str = "class",
    *,
    base: SceneClassifier | str | Path = "ucmerced",
    folder: str | Path = ".",
    block: str | None = None,
    keep: bool = True,
    progress: Progress = silent,
    **options: Any,
) -> Taught:
    """Train a classifier on rasters and labels for places on them.

    Args:
        rasters: As for :func:`mgcap.geo.mapping.map_raster`.
        labels: Vector files, as paths or read by :func:`mgcap.geo.vectors.read_vectors`, or GeoDataFrames with points,
            lines or polygons, one or several.
        field: With the class of each feature.
        base: A model, or its file or name, whose network is used; not its head.
        folder: Takes the index of each raster, as ``scene.zarr``, unless ``index`` says where it is or goes.
        block: Side of the blocks of land that are held out together, as ``500m`` or ``1000px``; by default four tiles.
        keep: Let the model carry its examples, so that classes can be added later.
        progress: Where to report.
        **options: Of :class:`mgcap.geo.plan.MapOptions`.
    """
    own = _loaded(base)
    drawn = draw_examples(rasters, labels, field, base=own, folder=folder, progress=progress, **options)
    return teach_drawn(own, drawn, block, keep)


def teach_drawn(base: SceneClassifier, drawn: Drawn, block: str | None = None, keep: bool = True) -> Taught:
    """Train a classifier by what labels say of rasters; see :func:`fit_raster`."""
    side = block_side(drawn.indexes, block)
    card = card_of(drawn, side)
    return teach(
        base, drawn.examples, drawn.classes, block=side, imagery=drawn.imagery, card=card, keep=keep, look=drawn.look
    )


def draw_examples(
    rasters: str | Path | Sequence[str | Path],
    labels: Any,
    field: str = "class",
    *,
    base: SceneClassifier | str | Path = "ucmerced",
    folder: str | Path = ".",
    workers: Workers | None = None,
    progress: Progress = silent,
    **options: Any,
) -> Drawn:
    """The vectors of labelled cells; see :func:`fit_raster`. Rasters are indexed first, if they are not yet.

    Raises:
        DataError: If no cell gets a label.
        RasterError: If some rasters lie on the Earth, and others have no place.
    """
    classifier, paths, given = _loaded(base), _listed(rasters), _listed(options.pop("index", []))
    chosen = chosen_options(draw_examples, options)
    vectors = [vectors_of(own, field) for own in _listed(labels)]
    classes = classes_in(vectors, field)
    if given and len(given) != len(paths):
        raise DataError(f"`index` is needed for each of the {len(paths)} rasters, in their order")
    check_together(paths, chosen.allow_vrt)
    each = [dataclasses.replace(chosen, index=own) for own in given] or [chosen] * len(paths)
    opened = [open_for(classifier, path, Path(folder), own, progress) for path, own in zip(paths, each, strict=True)]
    indexes = tuple(own.index for own in opened)

    def labelled(wherever: bool = False) -> tuple[Labelled, ...]:
        found = []
        for index in indexes:
            cells = cells_of_index(index, wherever)
            found.append(together([label_cells(cells, own, field, classes) for own in vectors]))
        if not any(len(own.cells) for own in found):
            raise none_labelled(vectors, paths, found)
        return tuple(found)

    if not indexes[0].has(0):  # it takes time, and labels may lie elsewhere
        labelled(wherever=True)
    for own in opened:
        fill_index(own.index, own.planned, workers or compute_here(classifier), progress)
    found = labelled()
    both = enumerate(zip(indexes, found, strict=True))
    examples = joined([examples_of(index, own.cells, own.targets, number) for number, (index, own) in both])
    files = tuple(own.name if own.name != _TABLE else "a table" for own in vectors)
    return Drawn(examples, classes, found, indexes, look_at(indexes, found), opened[-1].imagery, files)


def _loaded(base: SceneClassifier | str | Path) -> SceneClassifier:
    from mgcap.classifier import SceneClassifier

    return base if isinstance(base, SceneClassifier) else SceneClassifier.load(base)


def _listed(labels: Any) -> list[Any]:
    return list(labels) if isinstance(labels, list | tuple) else [labels]


def vectors_of(labels: Any, field: str) -> Vectors:
    """What a vector file or a table of geopandas has.

    Raises:
        DataError: If it is neither, or has no such field.
    """
    if isinstance(labels, str | Path):
        return read_vectors(labels, [field])
    if isinstance(labels, Vectors):
        return labels
    if not hasattr(labels, "geometry"):
        raise DataError("`labels` takes vector files or GeoDataFrames")
    if field not in labels.columns:
        raise DataError(f"the table of labels has no column '{field}'; it has {', '.join(map(str, labels.columns))}")
    import shapely

    names = [text_of(value) for value in labels[field]]
    return Vectors(_TABLE, shapely.force_2d(labels.geometry.to_numpy()), {field: names}, labels.crs)


def examples_of(index: Index, cells: Array, targets: Array, number: int = 0) -> Examples:
    """The vectors of some cells ``[n, 2]`` of an index, with their classes."""
    length = int(index.group["vectors"].shape[2])  # type: ignore[union-attr]
    vectors = np.zeros((len(cells), length), np.float16)
    block = index.plan.block
    across = -(-index.plan.grid.columns // block)
    chunks = cells[:, 0] // block * across + cells[:, 1] // block
    for chunk in np.unique(chunks):
        own = np.flatnonzero(chunks == chunk)
        rows, columns = (cells[own] % block).T
        vectors[own] = index.read(int(chunk)).vectors[rows, columns]
    return Examples(
        torch.from_numpy(vectors),
        torch.from_numpy(targets.astype(np.int32)),
        torch.from_numpy(places_of(index, cells, number)),
    )


def look_at(indexes: Sequence[Index], labelled: Sequence[Labelled]) -> Look:
    """Finds the pictures of labelled cells by their places."""
    known: dict[tuple[float, ...], tuple[Index, int, int]] = {}
    for number, (index, own) in enumerate(zip(indexes, labelled, strict=True)):
        places = places_of(index, own.cells, number)
        for place, (row, column) in zip(places.tolist(), own.cells.tolist(), strict=True):
            known[tuple(place)] = index, row, column

    def look(place: Array, side: int) -> Array | None:
        found = known.get(tuple(place.tolist()))
        return None if found is None else cut_tile(*found, side)

    return look


def parse_block(text: str) -> tuple[float, str]:
    """The side of a block with its unit, as of a tile."""
    try:
        return parse_tile(text)
    except RasterError as error:
        raise RasterError(str(error).replace("`tile`", "`block`")) from None


def block_side(indexes: Sequence[Index], block: str | None) -> float:
    """The side of a block in the unit of places.

    Raises:
        RasterError: If it is given in metres, and rasters do not say where they lie; or smaller than a cell.
    """
    first = indexes[0]
    tile = tile_side(first)
    if block is None:
        return BLOCK_TILES * tile
    side, unit = parse_block(block)
    placed = on_earth(crs_of(first))
    if unit == "m" and not placed:
        raise RasterError(f"{first.name} does not say where it lies, so `block` must be given in pixels, as 1000px")
    if unit == "px" and placed:
        side *= tile / first.plan.tile[0]
    check_block(first, side, block)
    return side


def card_of(drawn: Drawn, block: float) -> dict[str, Any]:
    """How a model was taught, for its file: names of files, no paths."""
    return {
        "rasters": drawn.rasters,
        "files": list(drawn.files),
        "labels": summed([own.counts for own in drawn.labelled]),
        "left_out": drawn.left_out,
        "block": block,
        "unit": drawn.unit,
    }
