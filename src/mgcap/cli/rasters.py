"""What commands on rasters have in common: their options, files and workers."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mgcap.cli import completion as c
from mgcap.cli import options as o
from mgcap.cli.console import bars, check_writable
from mgcap.cli.predict import expand, globbed
from mgcap.errors import DataError, RasterError
from mgcap.persistence.shipped import DEFAULT_MODEL

if TYPE_CHECKING:
    from mgcap.classifier import SceneClassifier

Rasters = Annotated[list[str], typer.Argument(help="GeoTIFF, JPEG 2000, PNG, JPEG and WebP files, globs, folders.")]
Tile = Annotated[
    str | None, typer.Option(help="Side of a tile, as 80m or 256px; default: that of the training images.")
]
Cells = Annotated[
    int, typer.Option(help="Cells along the side of a tile: 4 gives a map with sixteen cells a tile.", min=1, max=16)
]
Bands = Annotated[str | None, typer.Option(help="Numbers of the red, green and blue band, as 4,3,2.")]
Scale = Annotated[
    str,
    typer.Option(
        help="Values that are black and white: auto (as in training, or a refusal), percentiles, or as 0,3000.",
        autocompletion=c.one_of(("auto", "percentiles")),
    ),
]
MinValid = Annotated[float, typer.Option(help="Share of a tile that must have data.", min=0.01, max=1.0)]
Cluster = Annotated[
    str | None, typer.Option(help="Dask cluster: local:N for N processes, or a scheduler as tcp://HOST:8786.")
]
AllowVrt = Annotated[
    bool,
    typer.Option(
        "--allow-vrt",
        help="Trust these rasters: VRTs, /vsi paths, other formats of GDAL and sidecar files are read.",
    ),
]


@dataclass(frozen=True)
class RasterOptions:
    """How rasters are read, and by which model."""

    model: o.Model = DEFAULT_MODEL
    cells: Cells = 4
    tile: Tile = None
    bands: Bands = None
    scale: Scale = "auto"
    min_valid: MinValid = 0.5
    cluster: Cluster = None
    allow_vrt: AllowVrt = False
    add: o.Add = None
    engine: o.Engine = "auto"
    device: o.Device = "auto"

    def values(self) -> dict[str, Any]:
        """Of :class:`mgcap.geo.plan.MapOptions`."""
        return {
            "cells": self.cells,
            "tile": self.tile,
            "bands": parse_bands(self.bands),
            "scale": self.scale,
            "min_valid": self.min_valid,
            "allow_vrt": self.allow_vrt,
        }

    def classifier(self) -> SceneClassifier:
        """The model."""
        need_geo()
        return load_model(self.model, self.add, self.device, self.engine)

    def workers(self) -> AbstractContextManager[Any]:
        """What computes the parts: None for this process."""
        if not self.cluster:
            return nullcontext(None)
        from mgcap.geo.cluster import cluster_workers

        return cluster_workers(self.cluster)

    def files(self, patterns: list[str]) -> list[str | Path]:
        """Files from files, globs and folders, and GDAL's virtual files as they are."""
        return raster_files(patterns, self.allow_vrt)


def raster_files(patterns: list[str], allow_vrt: bool) -> list[str | Path]:
    """Files from files, globs and folders, and GDAL's virtual files as they are."""
    from mgcap.geo.opening import is_virtual

    files: list[str | Path] = []
    for pattern in patterns:
        if indexes := indexes_of(pattern):
            raise DataError(f"{indexes[0]} is an index; give its raster, with --index {indexes[0]} to map it")
        files += [pattern] if is_virtual(pattern) else expand([pattern])
    if allow_vrt:
        bars.say("--allow-vrt: these rasters are trusted; GDAL may read other files and use the network for them")
    return files


def need_geo() -> None:
    """Say so at once if what rasters need is not installed."""
    try:
        import rasterio  # noqa: F401
        import zarr  # noqa: F401
    except ImportError as error:
        raise DataError("rasters need rasterio, zarr and more: pip install 'mgcap[geo]'") from error


def load_model(model: Path, add: list[Path] | None, device: str, engine: str) -> SceneClassifier:
    """A model for rasters."""
    from mgcap.classifier import SceneClassifier

    o.run_added(add)
    return SceneClassifier.load(model, device=device, engine=engine, progress=bars)


def parse_bands(text: str | None) -> tuple[int, ...] | None:
    """What ``--bands`` means."""
    if text is None:
        return None
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise DataError(f"--bands takes numbers, red first, as 4,3,2; not '{text}'") from None


def is_index(path: str | Path) -> bool:
    """Whether a path is that of an index."""
    try:
        return (Path(path).expanduser() / "zarr.json").is_file()
    except (OSError, RuntimeError):  # a name that is too long, a closed folder, or no such user
        return False


def indexes_of(pattern: str) -> list[Path]:
    """Indexes that are meant by a path or a glob, which then finds nothing else."""
    from mgcap.geo.opening import is_virtual

    found = [] if is_virtual(pattern) else globbed(pattern)
    return found if all(map(is_index, found)) else []


def targets(files: list[str | Path], out: Path | None, name: Callable[[str], str]) -> list[Path]:
    """Where the results for each raster go.

    Args:
        files: The rasters.
        out: The result for the only one, or a folder; by default the folder where the command runs.
        name: From a raster's name without its suffix to that of its result in a folder.
    """
    if out is not None and re.match(r"\w{2,}:/", str(out)):
        raise DataError(f"--out takes a place on this machine, not {out}; copy what is written from there")
    several = len(files) > 1 or out is None or (out.is_dir() and not is_index(out))
    if len(files) > 1 and out is not None and out.suffix and not out.is_dir():
        raise DataError(f"for {len(files)} rasters --out must be a folder, not {out}")
    folder = out or Path()
    paths = [folder / name(Path(file).stem) if several else folder for file in files]
    found = [path if is_index(path) else check_writable(path) for path in paths]  # an index is resumed
    if len(set(found)) < len(found):
        raise DataError("two rasters have the same name, so their results would overwrite each other; take them apart")
    return found


def each(files: Sequence[str | Path], work: Callable[[int], None], done: str) -> None:
    """Work on each raster; one that fails does not keep the others from it.

    Args:
        files: The rasters.
        work: Takes the number of one.
        done: What was to be done to them, as ``mapped``.
    """
    failed = 0
    for number in range(len(files)):
        try:
            work(number)
        except RasterError as error:
            if len(files) == 1:
                raise
            bars.say(f"error: {error}")
            failed += 1
    if failed:
        raise DataError(f"{failed} of {len(files)} rasters could not be {done}")
