"""``mgcap search``."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mgcap.cli import options as o
from mgcap.cli import rasters as r
from mgcap.cli.console import bars, check_writable, data, guarded, show_table
from mgcap.cli.signature import expanded
from mgcap.errors import DataError
from mgcap.persistence.shipped import DEFAULT_MODEL

if TYPE_CHECKING:
    from mgcap.geo.search import Found

#: Hits that are printed.
PRINTED = 10


@guarded
@expanded
def search(
    indexes: Annotated[list[str], typer.Argument(help="Indexes that mgcap index made, as scene.zarr.")],
    like: Annotated[
        Path | None, typer.Option(help="An image that shows as much ground as a tile, as tile.jpg.")
    ] = None,
    at: Annotated[
        str | None, typer.Option(help="A place in one of the rasters instead, as 524000,5267000 (x first).")
    ] = None,
    crs: Annotated[
        str | None,
        typer.Option(help="Coordinate system of --at, as EPSG:4326 for longitude, latitude; default: the raster's."),
    ] = None,
    top: Annotated[int, typer.Option(help="Number of hits.", min=1, max=100_000)] = 50,
    everything: Annotated[
        bool, typer.Option("--all", help="Keep hits whose tiles overlap those of better ones.")
    ] = False,
    out: Annotated[Path, typer.Option(help="A .gpkg file; a picture of the best hits goes beside it as .png.")] = Path(
        "found.gpkg"
    ),
    model: o.Model = DEFAULT_MODEL,
    add: o.Add = None,
    engine: o.Engine = "auto",
    device: o.Device = "auto",
    json_file: o.Json = None,
) -> None:
    """Find the places in rasters that look like an image, or like another place, however they are rotated.

    Every cell of the indexes is compared; beyond a million cells an approximate index is made beside each and kept.

    Example: mgcap search scene.zarr other.zarr --like tile.jpg --top 100 --out found.gpkg
    """
    if (like is None) == (at is None):
        raise DataError("give either --like or --at")
    if out.suffix.lower() != ".gpkg":
        raise DataError(f"--out takes a .gpkg file, not {out}")
    place = None if at is None else _place(at)
    target = check_writable(out)
    r.need_geo()
    from mgcap.geo.geopackage import check_replaced
    from mgcap.geo.hits import LAYER, check_coordinates, write_hits, write_sheet
    from mgcap.geo.nearest import Gallery
    from mgcap.geo.search import search as find

    check_replaced(target, LAYER)
    gallery = Gallery.open(indexes, bars)
    check_coordinates(gallery.indexes)
    classifier = r.load_model(model, add, device, engine)
    start = time.monotonic()
    found = find(
        gallery, like=like, at=place, crs=crs, classifier=classifier, top=top, thin=not everything, progress=bars
    )
    seconds = time.monotonic() - start
    picture = target.with_suffix(".png")
    with bars("Writing the hits", None):
        write_hits(target, found)
        write_sheet(picture, found)
    bars.say(f"{gallery.cells} cells searched in {seconds:.1f} s, with the time to read them and to look at the query")
    for path in (target, picture):
        bars.say(str(path))
    report = {
        "query": found.title,
        "cells": gallery.cells,
        "hits": [asdict(hit) for hit in found.hits],
        "files": [str(target), str(picture)],
    }
    o.write_json(json_file, report)
    if json_file != "-":
        _show(found)


def _place(text: str) -> tuple[float, float]:
    try:
        x, y = (float(part) for part in text.split(","))
    except ValueError:
        raise DataError(f"--at takes two numbers, x first, as 524000,5267000; not '{text}'") from None
    return x, y


def _show(found: Found) -> None:
    from mgcap.geo.hits import place_of

    columns = ["rank", "score", "place", "row", "column", "angle"]
    several = len(found.indexes) > 1
    rows: list[list[Any]] = [
        [hit.rank, f"{hit.score:.3f}", place_of(hit, found.indexes), hit.row, hit.column, f"{hit.angle:g}"]
        + [hit.index] * several
        for hit in found.hits[:PRINTED]
    ]
    if not rows:
        data.print("no cell of these indexes has data")
        return
    show_table([*columns, *(["index"] * several)], rows)
