"""What a search found, as files: a GeoPackage, and a picture of the query with its best hits."""

from __future__ import annotations

import datetime
import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mgcap.errors import RasterError
from mgcap.geo.earth import has_straight_degrees, in_degrees, on_earth
from mgcap.geo.geopackage import Layer, write_geopackage
from mgcap.geo.index import Index
from mgcap.geo.search import Found, Hit
from mgcap.geo.sources import crs_of, cut_tile, outlines_of
from mgcap.typing import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: The layer of a GeoPackage.
LAYER = "hits"
#: Hits on the picture, how many are in a row, and the side of each in pixels.
SHOWN, ABREAST, SIDE = 24, 5, 256


def check_coordinates(indexes: list[Index]) -> None:
    """See that hits of some indexes can go to one file.

    Raises:
        RasterError: If some lie on the Earth and others do not say where.
    """
    known = {on_earth(crs_of(index)) for index in indexes}
    if len(known) > 1 or (known == {False} and len({index.about.crs for index in indexes}) > 1):
        raise RasterError(
            "some of these rasters say where on the Earth they lie and others do not; search them one by one"
        )


def write_hits(path: Path, found: Found) -> None:
    """Write the outlines of the tiles as a GeoPackage, whole or not at all.

    Coordinates are those of the rasters, or degrees where these have several systems. Same hits, same bytes.
    """
    import shapely

    crs, corners = _outlines(found)
    changed = max(index.plan.changed[0] for index in found.indexes)
    hits = found.hits
    columns: dict[str, Array] = {
        "rank": np.array([hit.rank for hit in hits], np.int32),
        "score": np.array([hit.score for hit in hits], np.float64).round(4),
        "index": np.array([hit.index for hit in hits], object),
        "row": np.array([hit.row for hit in hits], np.int32),
        "column": np.array([hit.column for hit in hits], np.int32),
        "canonical_angle": np.array([hit.angle for hit in hits], np.float64).round(1),
    }
    stamp = datetime.datetime.fromtimestamp(changed / 1e9, datetime.UTC)
    write_geopackage(path, [Layer(LAYER, [(shapely.polygons(corners), columns)])], crs, stamp)


def _outlines(found: Found) -> tuple[Any, Array]:
    """The coordinate system of the hits, and the corners ``[n, 4, 2]`` of their tiles."""
    from rasterio.crs import CRS

    several = len({index.about.crs for index in found.indexes}) > 1
    corners = np.zeros((len(found.hits), 4, 2))
    for index in found.indexes:
        own = [number for number, hit in enumerate(found.hits) if hit.index == index.name]
        cells = np.array([(found.hits[number].row, found.hits[number].column) for number in own], int).reshape(-1, 2)
        corners[own] = outlines_of(index, *cells.T)
        if several and own:
            corners[own] = np.stack(in_degrees(crs_of(index), corners[own]), -1)
    if several:
        return CRS.from_epsg(4326), corners
    return crs_of(found.indexes[0]), corners


def place_of(hit: Hit, indexes: list[Index]) -> str:
    """The middle of a hit's tile in words."""
    crs = crs_of(next(index for index in indexes if index.name == hit.index))
    digits = 6 if on_earth(crs) and has_straight_degrees(crs) else 1
    return f"{hit.x:.{digits}f}, {hit.y:.{digits}f}"


def write_sheet(path: Path, found: Found) -> None:
    """Write a picture of the query and the best hits, with rank, score and place."""
    from mgcap.report.charts import save_figure

    save_figure(contact_sheet(found), path)


def contact_sheet(found: Found) -> Figure:
    """The picture of :func:`write_sheet`."""
    from mgcap.report.charts import new_figure

    hits = found.hits[:SHOWN]
    rows = -(-(1 + len(hits)) // ABREAST)
    figure = new_figure(2.3 * ABREAST, 2.75 * rows)
    every = list(itertools.chain.from_iterable(figure.subplots(rows, ABREAST, squeeze=False)))
    for axes in every:
        axes.set_axis_off()
    title = found.title if len(found.title) <= 28 else f"...{found.title[-25:]}"
    _show(every[0], found.query, f"searched for\n{title}", "bold")
    indexes = {index.name: index for index in found.indexes}
    for axes, hit in zip(every[1:], hits, strict=False):
        name = f"  {Path(hit.index).stem[:18]}" if len(indexes) > 1 else ""
        words = f"{hit.rank}   {hit.score:.3f}{name}\n{place_of(hit, found.indexes)}"
        _show(axes, cut_tile(indexes[hit.index], hit.row, hit.column, SIDE), words, "normal")
    return figure


def _show(axes: Axes, image: Any, words: str, weight: str) -> None:
    from mgcap.report.colours import GREY

    axes.set_title(words.replace("$", r"\$"), fontsize=8, loc="left", fontweight=weight)
    if image is None:
        axes.add_patch(_square(GREY))
        axes.text(0.5, 0.5, "the raster\nis not there", ha="center", va="center", fontsize=8)
        axes.set_aspect("equal")
    else:
        axes.imshow(image, interpolation="nearest" if max(image.shape) < SIDE else None)


def _square(colour: str) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((0, 0), 1, 1, color=colour)
