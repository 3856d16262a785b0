"""Where pixels lie on the Earth, and how large they are there: also at the antimeridian and at the poles."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from mgcap.errors import RasterError
from mgcap.typing import Array

if TYPE_CHECKING:
    from pyproj import CRS, Transformer
    from rasterio.io import DatasetReader


#: Sides of a pixel in metres between which it can be an image of the ground.
SMALLEST, LARGEST = 1e-4, 1e6
#: Metres in a projection's coordinates, beyond the numbers that some put before them for their zones.
FARTHEST = 2e8
#: Polygons that span more degrees than this get more corners, as their edges are bent in another projection.
WIDE = 1.0
#: Points along an edge of these.
POINTS = 16
#: The WGS84 ellipsoid: half its longer axis in metres, and its eccentricity.
RADIUS, ECCENTRICITY = 6_378_137.0, 0.0818191908426215
#: Rasters that begin farther away, in pixels, have no place. What is added before places are rounded down: many rasters
#: begin at half a pixel, where rounding is a matter of luck.
FARTHEST_PIXEL, NOT_HALF = 1 << 40, 0.51


@lru_cache(maxsize=8)
def _known(wkt: str) -> CRS:
    """The horizontal part of a coordinate system, or one sentence on why there is none."""
    from pyproj import CRS
    from pyproj.exceptions import CRSError

    try:
        known: Any = CRS.from_user_input(wkt)
    except CRSError:
        raise RasterError("the raster's coordinate system is not understood") from None
    while known.is_compound or known.is_bound:
        known = known.sub_crs_list[0] if known.is_compound else known.source_crs
    if known.is_geocentric or known.is_vertical:
        raise RasterError(
            f"the raster's coordinate system '{known.name}' ({known.type_name}) is not a map of the ground; "
            "warp the raster to a projected one"
        )
    return known  # type: ignore[no-any-return]


@lru_cache(maxsize=8)
def _way(wkt: str) -> Transformer:
    from pyproj import Transformer
    from pyproj.exceptions import ProjError

    try:
        return Transformer.from_crs(wkt, "EPSG:4326", always_xy=True)
    except ProjError:
        raise RasterError(
            f"the raster's coordinate system '{_known(wkt).name}' does not lead to longitude and latitude"
        ) from None


def on_earth(crs: Any) -> bool:
    """Whether coordinates say where on the Earth they are; those of a building site (engineering CRS) do not."""
    return bool(crs) and not _known(crs.to_wkt()).is_engineering


def in_degrees(crs: Any, polygons: Array) -> tuple[Array, Array]:
    """Longitudes and latitudes ``[n, m]`` of polygons ``[n, m, 2]``.

    Longitudes do not jump within a polygon, so they may go beyond 180 degrees. What sticks out beyond a pole, as half a
    pixel of grids that are registered by the middle of their pixels, ends there.
    """
    wkt = crs.to_wkt()
    unit = _known(wkt).axis_info[0].unit_conversion_factor  # in metres, or in radians
    x, y = polygons[..., 0], polygons[..., 1]
    if plain := has_straight_degrees(crs):
        unit = np.degrees(unit)
        y = y.clip(-90 / unit, 90 / unit)
    lon, lat = (np.asarray(part) for part in _way(wkt).transform(x, y))
    if not (np.isfinite(lon).all() and np.isfinite(lat).all() and np.abs(lat).max(initial=0) <= 90 + 1e-9) or (
        np.abs(polygons * unit).max(initial=0) > (720 if plain else FARTHEST)
    ):
        raise RasterError("the raster's coordinates do not lie on the Earth")
    about = x * unit if plain else lon[:, :1]
    return lon + 360 * np.round((about - lon) / 360), lat.clip(-90, 90)


def ground_metres(crs: Any, points: Array) -> Array:
    """Places ``[n, 2]`` in metres, so that places near each other are so in whatever raster they are seen.

    East of the middle of a degree of longitude and north of the equator (a sinusoidal projection for each degree, so
    that squares stay square); degrees lie apart.
    """
    lon, lat = (own[:, 0] for own in in_degrees(crs, points[:, None]))
    lon = (lon + 180) % 360 - 180
    zone = np.floor(lon)
    metres = np.radians(1) * RADIUS
    return np.stack((metres * ((lon - zone - 0.5) * np.cos(np.radians(lat)) + 2 * zone), metres * lat), -1)


def steps_metres(crs: Any, points: Array) -> Array:
    """How far places ``[n, 2]`` are from the first of them, to which they are near; in metres on a sphere, as above."""
    (lon,), (lat,) = in_degrees(crs, points[None])
    degrees = np.hypot((lon - lon[0]) * np.cos(np.radians(lat[0])), lat - lat[0])
    metres: Array = np.radians(1) * RADIUS * degrees[1:]
    return metres


def has_straight_degrees(crs: Any) -> bool:
    """Whether straight lines of the raster are straight in longitude and latitude."""
    known = _known(crs.to_wkt())
    return known.is_geographic and not known.is_derived


def with_points(polygons: Array) -> Array:
    """Polygons ``[n, m, 2]`` with more points along their edges."""
    way = np.roll(polygons, -1, 1) - polygons
    steps = np.arange(POINTS)[:, None] / POINTS
    points: Array = polygons[:, :, None] + steps * way[:, :, None]
    return points.reshape(len(polygons), -1, 2)


def wide_ones(lon: Array, lat: Array) -> Array:
    """Which polygons ``[n, m]`` span enough degrees for their edges to be bent, as do all around a pole."""
    wide: Array = (np.ptp(lon, 1) > WIDE) | (np.ptp(lat, 1) > WIDE)
    return wide


def square_metres(crs: Any, corners: Array) -> Array:
    """Areas of polygons ``[n, m, 2]`` on the ellipsoid, by equal-area projections."""
    lon, lat = in_degrees(crs, corners)
    side = np.where(lat[:, :1] < 0, -1, 1)
    x, y = np.radians(lon - lon[:, :1]), _cap(90 - side * lat) / 2  # cylindrical
    areas = plane_areas(RADIUS * np.stack((x, y), -1))
    if not has_straight_degrees(crs) and (wide := wide_ones(lon, lat)).any():
        lon, lat = in_degrees(crs, with_points(corners[wide]))
        lon, far = np.radians(lon), np.sqrt(_cap(90 - side[wide] * lat))  # azimuthal, with the pole in the middle
        areas[wide] = plane_areas(RADIUS * np.stack((far * np.cos(lon), far * np.sin(lon)), -1))
    return areas


def _cap(degrees: Array) -> Array:
    """Area of the ellipsoid around a pole up to a distance in degrees, in units of pi times the square of RADIUS.

    This is q(90) - q(latitude) of Snyder's Map Projections (3-12), without its small differences of large numbers.
    """
    e = ECCENTRICITY
    missing = 2 * np.sin(np.radians(degrees) / 2) ** 2  # 1 - sine of the latitude
    s = 1 - missing
    ring: Array = missing * (1 + e**2 * s) / (1 - (e * s) ** 2)
    return ring + (1 - e**2) / e * np.arctanh(e * missing / (1 - e**2 * s))


def plane_areas(corners: Array) -> Array:
    """Areas of polygons ``[n, m, 2]`` in the square of their own units."""
    x, y = np.moveaxis(corners - corners[:, :1], -1, 0)  # small differences of large numbers would lose digits
    area: Array = np.abs((x * np.roll(y, -1, 1) - np.roll(x, -1, 1) * y).sum(1)) / 2
    return area


def to_ground(transform: Any, x: Array, y: Array) -> Array:
    """Coordinates ``[..., 2]`` of places on a raster in pixels."""
    t = transform
    return np.stack((t.a * x + t.b * y + t.c, t.d * x + t.e * y + t.f), -1)


def pixel_metres(dataset: DatasetReader) -> tuple[float, float] | None:
    """Width and height of a pixel on the ground, in the middle of a raster; None if it does not say where it is."""
    from pyproj import Geod

    t, name = dataset.transform, dataset.name
    sides = math.hypot(t.a, t.d) * math.hypot(t.b, t.e)
    if not (all(map(math.isfinite, t[:6])) and 0 < sides < math.inf and abs(t.a * t.e - t.b * t.d) > 1e-6 * sides):
        raise RasterError(f"{name} has pixels without an area by its own coordinates (its geotransform is {t[:6]})")
    x, y = dataset.width / 2, dataset.height / 2
    places = to_ground(t, np.array([x, x + 1, x]), np.array([y, y, y + 1]))
    try:
        if not on_earth(dataset.crs):
            return None
        (lon,), (lat,) = in_degrees(dataset.crs, places[None])
    except RasterError as error:
        raise RasterError(f"{name} cannot be mapped: {error}") from error
    _, _, (width, height) = Geod(ellps="WGS84").inv([lon[0]] * 2, [lat[0]] * 2, lon[1:], lat[1:])
    if not (min(width, height) >= SMALLEST and max(width, height) <= LARGEST):
        raise RasterError(
            f"{name} has pixels of {width:.3g} x {height:.3g} m by its own coordinates, "
            "which are no map; near a pole, warp it to a polar projection"
        )
    return float(width), float(height)


def whole_offset(transform: Any, crs: Any) -> tuple[int, int]:
    """Pixels (x, y) from the origin of a coordinate system to a raster's corner; zeros if it has none, or is rotated.

    They are whole, and rounded alike for all rasters whose pixels coincide.
    """
    t = transform
    if crs is None or t.b or t.d or not (t.a and t.e):
        return 0, 0
    places = t.c / t.a, t.f / t.e
    if not all(abs(place) < FARTHEST_PIXEL for place in places):
        return 0, 0
    x, y = (math.floor(place + NOT_HALF) for place in places)
    return x, y
