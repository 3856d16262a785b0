"""``mgcap index``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mgcap.cli import rasters as r
from mgcap.cli.console import bars, data, guarded
from mgcap.cli.signature import expanded


@guarded
@expanded
def index(
    rasters: r.Rasters,
    options: r.RasterOptions,
    out: Annotated[
        Path | None,
        typer.Option(help="The index, as scene.zarr, or for several rasters a folder; default: here, by their names."),
    ] = None,
    exact: Annotated[bool, typer.Option("--exact", help="Look at the tile of each cell by itself; slow.")] = False,
) -> None:
    """Look at rasters once and keep a vector for each cell; maps and searches are made from these.

    The network sees large blocks of the raster, and the tiles around all cells take what they need from the same
    features. A run that was killed is resumed when the same command is given again; several may share the work.

    Example: mgcap index scene.tif --out scene.zarr
    """
    files = options.files(rasters)
    targets = r.targets(files, out, lambda stem: f"{stem}.zarr")
    classifier = options.classifier()
    from mgcap.geo.indexing import index_raster

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
            bars.say(f"{Path(files[number]).name}: {grid.rows} x {grid.columns} cells")
            data.print(found.name, markup=False)

        r.each(files, work, "indexed")
