"""What a map is made of, worked out before any tile is read; it travels to other machines as JSON."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

from mgcap.data.decoding import max_pixels
from mgcap.data.imagery import Imagery
from mgcap.data.limits import MIN_SIDE
from mgcap.errors import MgcapError, RasterError, check_parameters
from mgcap.geo.earth import pixel_metres
from mgcap.geo.grid import Grid, Tile, cells_in_tile
from mgcap.geo.opening import file_state, is_virtual, sources_state
from mgcap.geo.raster import Look, choose_look
from mgcap.persistence.files import sha256_of
from mgcap.persistence.shipped import find_model

if TYPE_CHECKING:
    from rasterio.io import DatasetReader

    from mgcap.classifier import SceneClassifier

#: Tiles that are computed, kept and sent together.
CHUNK = 64
#: Pixels more than this many times coarser than those of the training images show other things.
COARSEST = 3.0
#: Cells along the side of a tile that may be asked for.
MOST_CELLS = 16
#: Side of a tile that may be asked for, in metres or pixels.
LARGEST_TILE = 1_000_000_000


class Plan(BaseModel):
    """How one raster is mapped.

    Attributes:
        raster: Its file.
        size: Its width and height in pixels.
        changed: When the file was last changed, and its length: another file of the same name is another map.
        cell: Width and height of a cell in pixels.
        cells_in_tile: Along each side.
        shape: Rows and columns that a tile is resampled to.
        bands: Of red, green and blue.
        black: What is black.
        white: What is white.
        min_valid: Part of a tile that must have data.
        model: Its file.
        model_fingerprint: SHA-256 of that.
        engine: The engine that computes the backbone.
        chunk: Tiles that are computed, kept and sent together.
        allow_vrt: Whether the raster may read other files, see :func:`mgcap.geo.opening.open_raster`.
        sources: Fingerprint of these, see :func:`mgcap.geo.opening.sources_state`.
    """

    model_config = ConfigDict(frozen=True)

    raster: str
    size: tuple[int, int]
    changed: tuple[int, int]
    cell: tuple[int, int]
    cells_in_tile: int
    shape: tuple[int, int]
    bands: tuple[int, ...]
    black: float
    white: float
    min_valid: float
    model: str
    model_fingerprint: str
    engine: str
    chunk: int
    allow_vrt: bool = False
    sources: str = ""

    @property
    def grid(self) -> Grid:
        """Cells and tiles."""
        return Grid(*self.size, *self.cell, self.cells_in_tile)

    @property
    def look(self) -> Look:
        """How pixels are read."""
        return Look(self.bands, self.black, self.white)

    @property
    def chunks(self) -> int:
        """How many chunks of tiles there are."""
        return -(-len(self.grid) // self.chunk)

    def tiles(self, chunk: int) -> list[Tile]:
        """The tiles of a chunk."""
        grid = self.grid
        return [grid.tile(number) for number in range(chunk * self.chunk, min(len(grid), (chunk + 1) * self.chunk))]


def parse_tile(text: str) -> tuple[float, str]:
    """A side in metres or pixels: ``76.8m``, ``256`` or ``256px``."""
    # a longer text would only keep the pattern busy
    found = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*(m|px)?\s*", text) if len(text) <= 40 else None
    if found is None or float(found[1]) <= 0:
        above = "" if found is None else " above 0"
        shown = text if len(text) <= 40 else f"{text[:40]}..."
        raise RasterError(f"`tile` takes metres or pixels{above}, as 80m or 256px, not '{shown}'")
    if float(found[1]) > LARGEST_TILE:
        raise RasterError(f"`tile` takes at most {LARGEST_TILE:,} metres or pixels, not {text.strip()}")
    return float(found[1]), found[2] or "px"


@dataclass(frozen=True)
class MapOptions:
    """What may be chosen of a map.

    Attributes:
        tile: Side of a tile as ``80m`` or ``256px``; by default that of the training images on the ground, or in pixels
            if model or raster do not know their resolution.
        cells: Along the side of a tile.
        exact: Look at each tile by itself, without an index.
        overlap: Of tiles, as a part of their side, where each is looked at by itself.
        index: Where the index is or goes, or the address of one that is whole; beside the map by default.
        bands: Of red, green and blue.
        scale: See :func:`mgcap.geo.raster.choose_look`.
        min_valid: Part of a tile that must have data.
        chunk: Tiles that are computed, kept and sent together.
        max_tiles: More are refused.
        max_tile_pixels: Of a tile as the model sees it; more are refused, by default more than an image may have.
        allow_vrt: Let the raster read other files, see :func:`mgcap.geo.opening.open_raster`.
        dissolve: Write cells that touch and show the same as one polygon too.
    """

    tile: str | None = None
    cells: int = 4
    exact: bool = False
    overlap: float = 0.0
    index: str | Path | None = None
    bands: tuple[int, ...] | None = None
    scale: str = "auto"
    min_valid: float = 0.5
    chunk: int = field(default_factory=lambda: CHUNK)
    max_tiles: int | None = None
    max_tile_pixels: int = field(default_factory=max_pixels)
    allow_vrt: bool = False
    dissolve: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.overlap <= 0.9:
            raise RasterError(f"`overlap` takes 0 to 0.9, not {self.overlap}")
        if not 1 <= self.cells <= MOST_CELLS:
            raise RasterError(f"`cells` takes 1 to {MOST_CELLS}, not {self.cells}")
        if not 0 <= self.min_valid <= 1:
            raise RasterError(f"`min_valid` takes 0 to 1, not {self.min_valid}")
        if self.tile is not None:
            parse_tile(self.tile)


def chosen_options(function: Callable[..., object], given: Mapping[str, Any]) -> MapOptions:
    """The options that were given to a function beside its own parameters.

    Raises:
        ParameterError: If there is none of this name.
    """
    known = [*MapOptions.__dataclass_fields__, *inspect.signature(function).parameters]
    check_parameters(function.__name__, given, known)
    return MapOptions(**given)


@dataclass(frozen=True)
class ModelFile:
    """The model of a map.

    Attributes:
        path: Its file.
        fingerprint: SHA-256 of that.
        engine: The engine that computes its backbone.
    """

    path: Path
    fingerprint: str
    engine: str

    @classmethod
    def of(cls, classifier: SceneClassifier, model: str | Path | None) -> ModelFile:
        """The file of a classifier: the one that is named, or the one that it was saved to or loaded from.

        Raises:
            MgcapError: If there is neither.
        """
        if model is not None:
            path = find_model(model)
            return cls(path, sha256_of(path), classifier.engine_.name)
        if classifier.file_ is None or classifier.fingerprint_ is None:
            raise MgcapError("the model is in no file, which maps and indexes need; save it before, or name its file")
        return cls(classifier.file_, classifier.fingerprint_, classifier.engine_.name)


def make_plan(
    dataset: DatasetReader, path: str | Path, imagery: Imagery, model: ModelFile, options: MapOptions, k: int = 0
) -> Plan:
    """Look at a raster and work out how to map it.

    Args:
        dataset: The raster, open.
        path: Its file.
        imagery: What the model was trained on.
        model: The model.
        options: What was chosen.
        k: Cells along the side of a tile; as the overlap of tiles asks for, by default.
    """
    look = choose_look(dataset, imagery, options.bands, options.scale)
    side, shape = tile_pixels(dataset, imagery, options.tile)
    if min(side) < k:
        raise RasterError(f"a tile would be {side[0]:.3g} x {side[1]:.3g} pixels, too few for `cells={k}`")
    grid = Grid.of(dataset.width, dataset.height, side, k or cells_in_tile(options.overlap))
    if options.max_tiles is not None and len(grid) > options.max_tiles:
        raise RasterError(f"the map would have {len(grid)} tiles; {options.max_tiles} are allowed")
    return Plan(
        raster=str(path) if is_virtual(path) else str(Path(path).resolve()),
        size=(dataset.width, dataset.height),
        changed=file_state(path),
        cell=(grid.cell_width, grid.cell_height),
        cells_in_tile=grid.k,
        shape=_shape_seen(grid, shape, options.max_tile_pixels),
        bands=look.bands,
        black=look.black,
        white=look.white,
        min_valid=options.min_valid,
        model=str(model.path.resolve()),
        model_fingerprint=model.fingerprint,
        engine=model.engine,
        chunk=options.chunk,
        allow_vrt=options.allow_vrt,
        sources=sources_state(dataset),
    )


def _shape_seen(grid: Grid, shape: tuple[int, int], limit: int) -> tuple[int, int]:
    """Rows and columns that tiles are resampled to; a raster smaller than a tile is not enlarged."""
    first = grid.tile(0)
    rows = max(MIN_SIDE, round(shape[0] * first.height / (grid.k * grid.cell_height)))
    columns = max(MIN_SIDE, round(shape[1] * first.width / (grid.k * grid.cell_width)))
    if rows * columns > limit:
        raise RasterError(
            f"the model would see tiles of {columns:,} x {rows:,} pixels, over the limit of {limit:,} "
            "pixels; give a smaller `tile`"
        )
    return rows, columns


def tile_pixels(
    dataset: DatasetReader, imagery: Imagery, tile: str | None
) -> tuple[tuple[float, float], tuple[int, int]]:
    """Width and height of a tile in pixels of the raster, and rows and columns that the model sees of it."""
    metres = pixel_metres(dataset)
    if tile is None:
        known = imagery.resolution is not None and metres is not None
        side, unit = (imagery.side * (imagery.resolution or 1), "m") if known else (float(imagery.side), "px")
        if metres is not None and imagery.resolution is not None and max(metres) > COARSEST * imagery.resolution:
            raise RasterError(
                f"{dataset.name} has pixels of {max(metres):.3g} m, but the model was trained at "
                f"{imagery.resolution:g} m; use a model of that resolution, or give `tile` to map it all the same"
            )
    else:
        side, unit = parse_tile(tile)
    if unit == "px":
        width = height = side
    elif metres is None:
        raise RasterError(f"{dataset.name} does not say where it lies, so `tile` must be given in pixels, as 256px")
    else:
        width, height = side / metres[0], side / metres[1]
    if min(width, height) < MIN_SIDE:
        raise RasterError(f"a tile would be {width:.3g} x {height:.3g} pixels; at least {MIN_SIDE} are needed")
    if imagery.resolution is None or metres is None:
        return (width, height), (round(height), round(width))
    return (width, height), (
        max(MIN_SIDE, round(height * metres[1] / imagery.resolution)),
        max(MIN_SIDE, round(width * metres[0] / imagery.resolution)),
    )


def same_work(plan: Plan, kept: dict[str, Any]) -> bool:
    """Whether chunks that were kept belong to this plan."""
    return plan.model_dump(mode="json") == kept
