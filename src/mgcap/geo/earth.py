"""Where pixels lie on the Earth, and how large they are there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mgcap.errors import RasterError

if TYPE_CHECKING:
    from rasterio.io import DatasetReader

Array = np.ndarray[Any, Any]


def pixel_metres(dataset: DatasetReader) -> tuple[float, float] | None:
    """Width and height of a pixel on the ground, in the middle of a raster; None if it does not say where it is."""
    from pyproj import Geod

    if dataset.crs is None:
        return None
    x, y = dataset.width / 2, dataset.height / 2
    places = to_ground(dataset.transform, np.array([x, x + 1, x]), np.array([y, y, y + 1]))
    lon, lat = to_degrees(dataset.crs, places)
    if not np.isfinite([*lon, *lat]).all():
        raise RasterError(f"{dataset.name} does not lie on the Earth by its own coordinates")
    _, _, metres = Geod(ellps="WGS84").inv([lon[0]] * 2, [lat[0]] * 2, lon[1:], lat[1:])
    return float(metres[0]), float(metres[1])


def to_ground(transform: Any, x: Array, y: Array) -> Array:
    """Coordinates ``[..., 2]`` of places on a raster in pixels."""
    t = transform
    return np.stack((t.a * x + t.b * y + t.c, t.d * x + t.e * y + t.f), -1)


def to_degrees(crs: Any, points: Array) -> tuple[Array, Array]:
    """Longitude and latitude of points ``[n, 2]``."""
    return _transformed(crs, "EPSG:4326", points)


def square_metres(crs: Any, corners: Array) -> Array:
    """Areas of polygons ``[n, m, 2]`` on the ground, by an equal-area projection."""
    flat = corners.reshape(-1, 2)
    x, y = _transformed(crs, "EPSG:6933", flat)
    return plane_areas(np.stack((x, y), -1).reshape(corners.shape))


def plane_areas(corners: Array) -> Array:
    """Areas of polygons ``[n, m, 2]`` in the square of their own units."""
    x, y = np.moveaxis(corners - corners[:, :1], -1, 0)  # small differences of large numbers would lose digits
    area: Array = np.abs((x * np.roll(y, -1, 1) - np.roll(x, -1, 1) * y).sum(1)) / 2
    return area


def _transformed(crs: Any, target: str, points: Array) -> tuple[Array, Array]:
    from pyproj import CRS, Transformer

    way = Transformer.from_crs(CRS.from_user_input(crs.to_wkt()), target, always_xy=True)
    x, y = way.transform(points[:, 0], points[:, 1])
    return np.asarray(x), np.asarray(y)
