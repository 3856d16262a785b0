"""Small maps, written without the code that writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import rasterio
from rasterio.transform import Affine

#: Cells of 10 pixels of 1 m in Germany.
PLACE = Affine(10, 0, 500_000, 0, -10, 5_600_000)


def ground(place: Affine, x: float, y: float) -> tuple[float, float]:
    """Coordinates of a place in cells."""
    return place.a * x + place.b * y + place.c, place.d * x + place.e * y + place.f


def write_map(
    path: Path,
    numbers: Any,
    classes: tuple[str, ...] = ("forest", "medium residential", "river"),
    size: tuple[int, int] | None = None,
    crs: Any = "EPSG:25832",
    transform: Affine = PLACE,
) -> Path:
    """A class raster: 1 is the first class, 0 no data; cells of 10 x 10 pixels of a raster of ``size``."""
    values = np.array(numbers, np.uint8)
    rows, columns = values.shape
    width, height = size or (10 * columns, 10 * rows)
    with rasterio.open(
        path, "w", driver="GTiff", count=1, width=columns, height=rows, dtype="uint8", crs=crs, transform=transform
    ) as dataset:
        dataset.write(values[None])
        dataset.update_tags(
            RASTER_SIZE=f"{width} {height}",
            CELL_SIZE="10 10",
            **{f"CLASS_{number}": name for number, name in enumerate(classes, 1)},
        )
    return path
