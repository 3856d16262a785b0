"""What is seen to before anything is learnt: that rasters go together, and that blocks of land are large enough."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from mgcap.errors import RasterError
from mgcap.geo.earth import on_earth
from mgcap.geo.index import Index
from mgcap.geo.opening import open_raster
from mgcap.geo.sources import crs_of
from mgcap.labelling.pool import tile_side


def check_together(paths: Sequence[str | Path], allow_vrt: bool, indexes: Sequence[Index] = ()) -> None:
    """See that the places of all rasters are in one unit.

    Args:
        paths: The rasters.
        allow_vrt: Whether they may read other files.
        indexes: Of others that they are used with.

    Raises:
        RasterError: If some lie on the Earth, and others have no place.
    """
    placed = [(Path(index.plan.raster), on_earth(crs_of(index))) for index in indexes]
    for path in paths:
        with open_raster(path, allow_vrt) as dataset:
            placed.append((Path(path), on_earth(dataset.crs)))
    nowhere = [path.name for path, there in placed if not there]
    if nowhere and len(nowhere) < len(placed):
        raise RasterError(f"{nowhere[0]} does not say where it lies, and others do; take those that do, or the others")


def check_block(index: Index, side: float, said: object) -> None:
    """See that blocks of land are no smaller than a cell, which would be held out alone, beside its neighbours.

    Args:
        index: Of the first raster.
        side: Of the blocks in the unit of its places.
        said: How this was given.

    Raises:
        RasterError: If they are smaller.
    """
    if not tile_side(index) / index.plan.cells_in_tile <= side < math.inf:
        raise RasterError(f"`block` must not be smaller than a cell, not {said}")
