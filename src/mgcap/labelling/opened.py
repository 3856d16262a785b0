"""Indexes of rasters that are to be learnt from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mgcap.data.imagery import Imagery
from mgcap.geo.index import Index
from mgcap.geo.indexing import Planned, find_index, plan_work, say_guesses
from mgcap.geo.opening import open_raster
from mgcap.geo.plan import MapOptions
from mgcap.labelling.kinds import imagery_for, seeing
from mgcap.runtime import Progress, silent

if TYPE_CHECKING:
    from mgcap.classifier import SceneClassifier


@dataclass(frozen=True)
class Opened:
    """An index that may have blocks to be computed.

    Attributes:
        index: Found or begun.
        planned: Makes its blocks.
        imagery: What its tiles look like to a model of the raster.
    """

    index: Index
    planned: Planned
    imagery: Imagery


def open_for(
    classifier: SceneClassifier, raster: str | Path, folder: Path, options: MapOptions, progress: Progress = silent
) -> Opened:
    """Find or begin the index of a raster that is to be learnt from.

    With ``tile`` tiles are seen as they are in the raster, whatever the network was trained on.
    """
    with open_raster(raster, options.allow_vrt) as dataset:
        say_guesses(dataset, raster, options, progress)
        imagery = imagery_for(classifier.imagery_, dataset, options)
        own = options.index or folder / f"{Path(raster).stem}.zarr"
        planned = plan_work(seeing(classifier, imagery), None, dataset, raster, options, index=own)
    index = find_index(own, planned, options.index is not None, progress)
    progress.say(f"the index of this raster is {index.name}")
    return Opened(index, planned, imagery)
