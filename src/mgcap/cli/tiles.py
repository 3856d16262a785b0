"""``mgcap datasets tiles``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mgcap.cli import completion as c
from mgcap.cli import rasters as r
from mgcap.cli.console import bars, data, guarded, show_table
from mgcap.errors import DataError, did_you_mean

#: What ``--format`` takes.
FORMATS = ("tif", "png", "jpg")


@guarded
def tiles(
    rasters: r.Rasters,
    labels: Annotated[
        Path, typer.Argument(help="Points, lines or polygons, as .gpkg, .shp, .geojson, .parquet or .csv.")
    ],
    field: Annotated[str, typer.Option(help="Field of the labels with the class.")] = "class",
    out: Annotated[Path, typer.Option(help="The folder to write, which must be new or empty.")] = Path("tiles"),
    tile: Annotated[
        str | None,
        typer.Option(
            help="Side of a tile, as 80m or 256px; default: 76.8m, or 256px where pixels are coarser than 0.9 m."
        ),
    ] = None,
    form: Annotated[
        str,
        typer.Option(
            "--format",
            help="Format of the tiles: tif (values as they are), or png or jpg with a world file.",
            autocompletion=c.one_of(FORMATS),
        ),
    ] = "tif",
    bands: Annotated[
        str | None, typer.Option(help="Numbers of the bands to write, as 4,3,2; default: red, green and blue.")
    ] = None,
    scale: Annotated[
        str,
        typer.Option(
            help="Values that are black and white: auto (as they are), percentiles, or as 0,3000; these make bytes.",
            autocompletion=c.one_of(("auto", "percentiles")),
        ),
    ] = "auto",
    min_valid: r.MinValid = 0.5,
    allow_vrt: r.AllowVrt = False,
) -> None:
    """Write the labelled places of rasters as a folder of tiles by class, for training here or with other tools.

    A point labels the tile around it, a polygon the tiles that it covers by more than half, a line those that it runs
    through. Tiles do not overlap; labels.csv lists them with the middle of each.

    Example: mgcap datasets tiles scene.tif labels.gpkg --field class --out tiles/
    """
    r.need_geo()
    from mgcap.geo.cut_tiles import TileOptions, cut_tiles

    if form not in FORMATS:
        raise DataError(f"--format takes tif, png or jpg, not '{form}'{did_you_mean(form, FORMATS)}")
    chosen = TileOptions(tile, form, r.parse_bands(bands), scale, min_valid, allow_vrt)
    cut = cut_tiles(r.raster_files(rasters, allow_vrt), labels, out, field, chosen, bars)
    for raster, reasons in cut.left_out.items():
        for why, count in reasons.items():
            bars.say(f"{Path(raster).name}: left out: {count} {why}")
    bars.say(f"{sum(cut.counts.values())} tiles of {sum(map(bool, cut.counts.values()))} classes")
    show_table(("class", "tiles"), [(name, count) for name, count in cut.counts.items()])
    data.print(str(out), markup=False)
