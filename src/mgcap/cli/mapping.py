"""``mgcap map``."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from mgcap.cli import completion as c
from mgcap.cli import options as o
from mgcap.cli.console import bars, check_writable, data, guarded
from mgcap.cli.predict import expand
from mgcap.cli.signature import expanded
from mgcap.errors import DataError, RasterError, did_you_mean
from mgcap.persistence.shipped import DEFAULT_MODEL

#: What ``--format`` takes.
FORMATS = ("gpkg", "geojson")


def _bands(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise DataError(f"--bands takes numbers, red first, as 4,3,2; not '{text}'") from None


def _rasters(patterns: list[str], allow_vrt: bool) -> list[str | Path]:
    """Files from files, globs and folders, and GDAL's virtual files as they are."""
    from mgcap.geo.opening import is_virtual

    files: list[str | Path] = []
    for pattern in patterns:
        files += [pattern] if is_virtual(pattern) else expand([pattern])
    if allow_vrt:
        bars.say("--allow-vrt: these rasters are trusted; GDAL may read other files and use the network for them")
    return files


@guarded
@expanded
def make_map(
    rasters: Annotated[list[str], typer.Argument(help="GeoTIFF, JPEG 2000, PNG, JPEG and WebP files, globs, folders.")],
    out: Annotated[
        Path,
        typer.Option(help="A .gpkg or .geojson file, or for several rasters a folder; the other files go beside it."),
    ] = Path("landuse.gpkg"),
    model: o.Model = DEFAULT_MODEL,
    tile: Annotated[
        str | None, typer.Option(help="Side of a tile, as 80m or 256px; default: that of the training images.")
    ] = None,
    overlap: Annotated[
        float,
        typer.Option(help="Overlap of tiles as a share of their side: 0.5 gives cells of half a tile.", min=0, max=0.9),
    ] = 0.0,
    bands: Annotated[str | None, typer.Option(help="Numbers of the red, green and blue band, as 4,3,2.")] = None,
    scale: Annotated[
        str,
        typer.Option(
            help="Values that are black and white: auto (as in training, or a refusal), percentiles, or as 0,3000.",
            autocompletion=c.one_of(("auto", "percentiles")),
        ),
    ] = "auto",
    sieve: Annotated[
        int, typer.Option(help="Merge patches of fewer cells than this into their largest neighbour, as 3.", min=0)
    ] = 0,
    min_valid: Annotated[float, typer.Option(help="Share of a tile that must have data.", min=0.01, max=1.0)] = 0.5,
    form: Annotated[
        str,
        typer.Option("--format", help="Format of several maps: gpkg or geojson.", autocompletion=c.one_of(FORMATS)),
    ] = "gpkg",
    cluster: Annotated[
        str | None, typer.Option(help="Dask cluster: local:N for N processes, or a scheduler as tcp://HOST:8786.")
    ] = None,
    allow_vrt: Annotated[
        bool,
        typer.Option(
            "--allow-vrt",
            help="Trust these rasters: VRTs, /vsi paths, other formats of GDAL and sidecar files are read.",
        ),
    ] = False,
    add: o.Add = None,
    engine: o.Engine = "auto",
    device: o.Device = "auto",
) -> None:
    """Map what rasters show: polygons with class and probability, class raster, picture and areas.

    A run that was killed is resumed when the same command is given again.

    Example: mgcap map scene.tif --out landuse.gpkg --overlap 0.5 --sieve 3
    """
    try:
        import rasterio  # noqa: F401

        from mgcap.geo.mapping import map_raster
    except ImportError as error:
        raise DataError("maps need rasterio and more: pip install 'mgcap[geo]'") from error
    from mgcap.classifier import SceneClassifier

    files = _rasters(rasters, allow_vrt)
    several = len(files) > 1 or out.is_dir()
    if form not in FORMATS:
        raise DataError(f"--format takes gpkg or geojson, not '{form}'{did_you_mean(form, FORMATS)}")
    if several and out.suffix and not out.is_dir():
        raise DataError(f"for {len(files)} rasters --out must be a folder, not {out}")
    targets = [
        check_writable(out / f"{Path(file).stem}.landuse.{form}") if several else check_writable(out) for file in files
    ]
    if len(set(targets)) < len(targets):
        raise DataError("two rasters have the same name, so their maps would overwrite each other; map them apart")
    o.run_added(add)
    classifier = SceneClassifier.load(model, device=device, engine=engine, progress=bars)
    if cluster:
        from mgcap.geo.cluster import cluster_workers

        manager = cluster_workers(cluster)
    else:
        manager = nullcontext(None)  # type: ignore[assignment]
    with manager as workers:
        failed = 0
        for file, target in zip(files, targets, strict=True):
            try:
                done = map_raster(
                    classifier,
                    model,
                    file,
                    target,
                    workers=workers,
                    sieve=sieve,
                    progress=bars,
                    tile=tile,
                    overlap=overlap,
                    bands=_bands(bands),
                    scale=scale,
                    min_valid=min_valid,
                    allow_vrt=allow_vrt,
                )
            except RasterError as error:  # the others get their maps
                if len(files) == 1:
                    raise
                bars.say(f"error: {error}")
                failed += 1
                continue
            grid = done.plan.grid
            bars.say(
                f"{Path(file).name}: {len(grid)} tiles of {grid.k * grid.cell_width} x "
                f"{grid.k * grid.cell_height} pixels, "
                f"{int(done.found.has_data.sum())} cells with data"
            )
            for path in done.files:
                data.print(str(path), markup=False)
    if failed:
        raise DataError(f"{failed} of {len(files)} rasters could not be mapped")
