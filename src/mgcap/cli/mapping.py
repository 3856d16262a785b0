"""``mgcap map``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mgcap.cli import completion as c
from mgcap.cli import rasters as r
from mgcap.cli.console import bars, data, guarded
from mgcap.cli.signature import expanded
from mgcap.errors import DataError, did_you_mean

#: What ``--format`` takes.
FORMATS = ("gpkg", "geojson", "parquet")


@guarded
@expanded
def make_map(
    rasters: r.Rasters,
    options: r.RasterOptions,
    out: Annotated[
        Path,
        typer.Option(
            help="A .gpkg, .geojson or .parquet file, or for several rasters a folder; the other files go beside it."
        ),
    ] = Path("landuse.gpkg"),
    index: Annotated[
        Path | None,
        typer.Option(help="Where the index of the raster is or goes, as scene.zarr; default: beside the map."),
    ] = None,
    exact: Annotated[
        bool, typer.Option("--exact", help="Look at each tile by itself, without an index; one cell a tile.")
    ] = False,
    overlap: Annotated[
        float,
        typer.Option(help="With --exact: overlap of tiles as a share of their side, as 0.5.", min=0, max=0.9),
    ] = 0.0,
    sieve: Annotated[
        int, typer.Option(help="Merge patches of fewer cells than this into their largest neighbour, as 3.", min=0)
    ] = 0,
    dissolve: Annotated[
        bool, typer.Option("--dissolve", help="Write cells that touch and show the same as one polygon too.")
    ] = False,
    form: Annotated[
        str,
        typer.Option(
            "--format", help="Format of several maps: gpkg, geojson or parquet.", autocompletion=c.one_of(FORMATS)
        ),
    ] = "gpkg",
) -> None:
    """Map what rasters show: polygons with class and probability, class raster, picture and areas.

    A run that was killed is resumed when the same command is given again. The index of the raster is kept, so another
    map of it, by another model or with larger cells, takes seconds.

    Example: mgcap map scene.tif --out landuse.gpkg --cells 2 --sieve 3
    """
    files = options.files(rasters)
    if form not in FORMATS:
        raise DataError(f"--format takes gpkg, geojson or parquet, not '{form}'{did_you_mean(form, FORMATS)}")
    if index is not None and (exact or overlap):
        raise DataError("--index is for maps without --exact and --overlap")
    if index is not None and len(files) > 1:
        raise DataError(f"--index is for one raster, not for {len(files)}")
    targets = r.targets(files, out, lambda stem: f"{stem}.landuse.{form}")
    classifier = options.classifier()
    from mgcap.geo.mapping import map_raster

    values = {**options.values(), "exact": exact, "overlap": overlap, "index": index, "dissolve": dissolve}
    with options.workers() as workers:

        def work(number: int) -> None:
            file, target = files[number], targets[number]
            done = map_raster(
                classifier, options.model, file, target, workers=workers, sieve=sieve, progress=bars, **values
            )
            grid, cells = done.plan.grid, int(done.found.has_data.sum())
            side = f"{grid.k * grid.cell_width} x {grid.k * grid.cell_height} pixels"
            cut = f"tiles of {side}, {grid.k} x {grid.k} cells each" if grid.k > 1 else f"tiles of {side}"
            bars.say(f"{Path(file).name}: {cut}; {cells} cells with data")
            for path in done.files:
                data.print(str(path), markup=False)

        r.each(files, work, "mapped")
