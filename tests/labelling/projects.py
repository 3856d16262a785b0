"""A small raster of three kinds of ground, its index, and a project of both."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import rasterio
from rasterio.transform import from_origin

from mgcap.geo.blocks import Cells
from mgcap.geo.index import create_index
from mgcap.geo.opening import open_raster
from mgcap.labelling.about import add_raster, create_project
from mgcap.labelling.project import Project
from tests.geo.indexes import about_of, plan_of

#: Cells from top to bottom and from left to right, of 10 x 10 pixels of 0.5 m.
ROWS, COLUMNS = 18, 24
GREEN, RED, BLUE = (40, 120, 50), (190, 80, 70), (50, 90, 180)


def kinds(rows: int = ROWS, columns: int = COLUMNS) -> np.ndarray:
    """0 (green) in the left third, 1 (red) in the middle, 2 (blue) on the right."""
    return np.broadcast_to(np.arange(columns) * 3 // columns, (rows, columns))


def write_scene(path: Path, crs: str | None = "EPSG:25832", west: float = 500_000) -> Path:
    """The raster."""
    rng = np.random.default_rng(0)
    pixels = np.array((GREEN, RED, BLUE))[kinds()].repeat(10, 0).repeat(10, 1)
    pixels = (pixels + rng.integers(-20, 20, pixels.shape)).clip(0, 255).astype(np.uint8)
    place = {"crs": crs, "transform": from_origin(west, 5_600_000, 0.5, 0.5)} if crs else {}
    size = {"height": 10 * ROWS, "width": 10 * COLUMNS}
    with rasterio.open(path, "w", driver="GTiff", count=3, dtype="uint8", **size, **place) as dataset:
        dataset.write(np.moveaxis(pixels, -1, 0))
    return path


def write_index(path: Path, raster: Path, missing: int = 1) -> Path:
    """An index whose vectors say which kind a cell is of, with some noise; the first row has no data."""
    rng = np.random.default_rng(1)
    with open_raster(raster) as dataset:
        t, crs = dataset.transform, dataset.crs.to_wkt() if dataset.crs else ""
        plan = plan_of(ROWS, COLUMNS, raster=str(raster.resolve()))
    index = create_index(path, about_of(plan, crs=crs, transform=(10 * t.a, 0, t.c, 0, 10 * t.e, t.f)), 8)
    for chunk in range(plan.chunks):
        place = plan.cells(chunk)
        own = kinds()[place]
        vectors = np.eye(8)[own] * 3 + rng.normal(0, 0.4, (*own.shape, 8))
        valid = np.full(own.shape, 255, np.uint8)
        if place[0].start == 0:
            valid[:missing] = 0
        vectors[valid == 0] = 0
        index.write(chunk, Cells(vectors.astype(np.float16), np.zeros(own.shape, np.uint16), valid))
    return path


def make_project(folder: Path, classes: tuple[str, ...] = ("wood", "town", "water")) -> Project:
    """A project of the raster, with classes."""
    raster = write_scene(folder / "scene.tif")
    index = write_index(folder / "scene.zarr", raster)
    create_project(folder / "scene.labels", "ucmerced")
    add_raster(folder / "scene.labels", raster, index)
    project = Project(folder / "scene.labels")
    for name in classes:
        project.add_class(name)
    return project
