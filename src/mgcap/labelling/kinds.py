"""What the tiles of a raster are like to a model that is taught by them: depth of the pixels, side and resolution."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import numpy as np

from mgcap.data.imagery import Imagery
from mgcap.geo.earth import on_earth, pixel_metres
from mgcap.geo.index import Index
from mgcap.geo.plan import MapOptions, parse_tile
from mgcap.geo.raster import choose_look
from mgcap.geo.sources import crs_of
from mgcap.labelling.pool import tile_side

if TYPE_CHECKING:
    from rasterio.io import DatasetReader

    from mgcap.classifier import SceneClassifier

#: Resolutions that differ by less are the same.
SAME = 0.02


def seeing(classifier: SceneClassifier, imagery: Imagery) -> SceneClassifier:
    """A classifier for images of another kind."""
    made = copy.copy(classifier)
    made.imagery_ = imagery
    return made


def imagery_of(index: Index, known: Imagery) -> Imagery:
    """What the tiles of an index are like to a model of it.

    Args:
        index: Of a raster.
        known: What the model was trained on whose network described it.
    """
    plan, side = index.plan, max(index.plan.shape)
    resolution = tile_side(index) / side if on_earth(crs_of(index)) else None
    if plan.white != known.white and plan.black == 0:
        known = known.model_copy(update={"dtype": "uint8" if plan.white <= 255 else "uint16", "white": plan.white})
    same = resolution is None or known.resolution is None or abs(resolution / known.resolution - 1) < SAME
    if same and side == known.side:
        return known
    return known.model_copy(update={"side": side, "resolution": resolution})


def imagery_for(known: Imagery, dataset: DatasetReader, options: MapOptions) -> Imagery:
    """What the tiles of a raster that is open will be like, by what was chosen."""
    kind = str(np.dtype(dataset.dtypes[0]))
    if options.scale != "auto":  # values are of the raster's own type, and white is what was said
        look = choose_look(dataset, known, options.bands, options.scale)
        if look.black == 0:
            known = known.model_copy(update={"dtype": kind, "white": look.white})
    if options.tile is None:
        return known
    metres = pixel_metres(dataset)
    side, unit = parse_tile(options.tile)
    if unit == "m" and metres is not None:
        side /= max(metres)
    resolution = None if metres is None else max(metres)
    return known.model_copy(update={"side": max(1, round(side)), "resolution": resolution})
