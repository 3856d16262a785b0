"""``mgcap index``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mgcap.cli import rasters as r
from mgcap.cli.console import bars, check_writable, data, guarded
from mgcap.cli.signature import expanded
from mgcap.errors import DataError


@guarded
@expanded
def index(
    rasters: r.Rasters,
    options: r.RasterOptions,
    out: Annotated[
        Path | None,
        typer.Option(help="The index, as scene.zarr, or for several rasters a folder; default: here, by their names."),
    ] = None,
    parquet: Annotated[
        bool,
        typer.Option("--parquet", help="Write the vectors as a GeoParquet table too, beside each index."),
    ] = False,
    exact: Annotated[bool, typer.Option("--exact", help="Look at the tile of each cell by itself; slow.")] = False,
) -> None:
    """Look at rasters once and keep a vector for each cell; maps and searches are made from these.

    The network sees large blocks of the raster, and the tiles around all cells take what they need from the same
    features. A run that was killed is resumed when the same command is given again; several may share the work.

    With --parquet, an index that is there already can be given in place of a raster.

    Example: mgcap index scene.tif --out scene.zarr --parquet
    """
    named = [r.indexes_of(name) for name in rasters]
    indexes = [path for found in named for path in found]
    if indexes and not parquet:
        raise DataError(f"{indexes[0]} is an index already; --parquet writes it as a table")
    if indexes and (out is not None or not all(named)):
        raise DataError("tables of indexes go beside them, without --out and without rasters")
    from mgcap.geo.index import open_index
    from mgcap.geo.index_table import write_index_table

    if indexes:

        def write(number: int) -> None:
            table = check_writable(indexes[number].with_suffix(".parquet"))
            write_index_table(table, open_index(indexes[number]), bars)
            data.print(str(table), markup=False)

        return r.each(indexes, write, "written")
    files = options.files(rasters)
    targets = r.targets(files, out, lambda stem: f"{stem}.zarr")
    tables = [check_writable(target.with_suffix(".parquet")) for target in targets] if parquet else []
    classifier = options.classifier()
    from mgcap.geo.indexing import index_raster
    from mgcap.geo.nearest import cells_with_data

    with options.workers() as workers:

        def work(number: int) -> None:
            found = index_raster(
                classifier,
                options.model,
                files[number],
                targets[number],
                workers=workers,
                progress=bars,
                exact=exact,
                **options.values(),
            )
            grid = found.plan.grid
            known = cells_with_data(found)
            bars.say(f"{Path(files[number]).name}: {grid.rows} x {grid.columns} cells, {known} of them with data")
            data.print(found.name, markup=False)
            if parquet:
                write_index_table(tables[number], found, bars)
                data.print(str(tables[number]), markup=False)

        r.each(files, work, "indexed")
