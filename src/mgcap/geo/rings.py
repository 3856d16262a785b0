"""Outlines of cells as GeoJSON wants them (RFC 7946): in degrees, anticlockwise, cut where longitudes jump."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import numpy as np

from mgcap.geo.earth import has_straight_degrees, in_degrees, on_earth, wide_ones, with_points
from mgcap.typing import Array

#: Digits of coordinates, more where cells are small: about a millimetre.
DIGITS = 8
#: A point this close to a pole, in degrees, is on it.
AT_POLE = 1e-9
#: A line near a pole gets more points where it spans more degrees of longitude than this, and how often it is halved.
TURN, HALVINGS = 2.0, 6


def outlines(crs: Any, corners: Array) -> list[dict[str, Any]]:
    """Geometries of polygons ``[n, m, 2]``; those of a raster without a place keep their own coordinates."""
    return _outlines(crs, corners)[0]


def joined_outlines(crs: Any, corners: Array, sizes: Array) -> list[dict[str, Any]]:
    """Geometries of patches: the unions of the :func:`outlines` of their cells.

    Args:
        crs: Of the corners.
        corners: ``[n, 4, 2]`` of cells, patch by patch.
        sizes: How many cells each patch has.
    """
    import shapely

    found, plain, digits = _outlines(crs, corners)
    shapes = shapely.from_geojson([json.dumps(shape) for shape in found])
    ends, joined = np.cumsum(sizes)[:-1], []
    for cells, regular in zip(np.split(shapes, ends), np.split(plain, ends), strict=True):
        whole = shapely.coverage_union_all(cells[regular])
        if not regular.all():  # near the antimeridian and poles neighbours may have other points along an edge
            whole = shapely.union_all([whole, *cells[~regular]], grid_size=10.0**-digits)
        joined.append(_geometry([whole], digits))
    return joined


def _outlines(crs: Any, corners: Array) -> tuple[list[dict[str, Any]], Array, int]:
    """Geometries, which of them have the corners of their cells, and the digits of these."""
    plain = np.ones(len(corners), bool)
    if not on_earth(crs):
        digits = _digits(corners)
        return _plain(corners.round(digits)), plain, digits
    lon, lat = in_degrees(crs, corners)
    lon = lon - 360 * np.floor((lon.min(1, keepdims=True) + 180) / 360)
    rings = np.stack((lon, lat), -1)
    digits = _digits(rings)
    rings = rings.round(digits)
    shapes = _plain(rings)
    plain = rings[..., 0].max(1) <= 180
    for number in np.flatnonzero(~plain):
        shapes[number] = _cut(rings[number], digits)
    if not has_straight_degrees(crs) and (wide := np.flatnonzero(wide_ones(lon, lat))).size:
        plain[wide] = False
        for number, *ring in zip(wide, *in_degrees(crs, with_points(corners[wide])), strict=True):
            shapes[number] = _by_quadrants(ring[0], ring[1], digits)
    return shapes, plain, digits


def _digits(rings: Array) -> int:
    """Enough for a hundredth of the shortest edge."""
    edges = np.abs(rings - np.roll(rings, 1, 1)).max(-1)
    shortest = edges.min(initial=1, where=edges > 0)
    return max(DIGITS, int(np.ceil(2 - np.log10(shortest))))


def _plain(rings: Array) -> list[dict[str, Any]]:
    x, y = np.moveaxis(rings - rings[:, :1], -1, 0)
    clockwise = (x * np.roll(y, -1, 1) - np.roll(x, -1, 1) * y).sum(1) < 0
    anticlockwise = np.where(clockwise[:, None, None], rings[:, ::-1], rings)
    return [{"type": "Polygon", "coordinates": [[*ring, ring[0]]]} for ring in anticlockwise.tolist()]


def _cut(ring: Array, digits: int) -> dict[str, Any]:
    """A ring ``[m, 2]`` that goes beyond 180 degrees, as two."""
    import shapely

    whole = shapely.make_valid(shapely.polygons(ring))
    west, east = (shapely.intersection(whole, shapely.box(left, -90, left + 360, 90)) for left in (-180, 180))
    return _geometry((west, shapely.transform(east, lambda points: points - (360, 0))), digits)


def _by_quadrants(lon: Array, lat: Array, digits: int) -> dict[str, Any]:
    """A ring near a pole, or around it: cut into quadrants as seen from the pole, so that no longitude jumps.

    Where it touches the pole it runs along the edge of the map there, from one longitude to the other.
    """
    import shapely

    side = -1 if lat.mean() < 0 else 1
    angle, far = np.radians(lon), 90 - side * lat
    seen = _halved(np.stack((far * np.cos(angle), far * np.sin(angle)), -1))
    whole = shapely.make_valid(shapely.polygons(seen))
    pieces = []
    for turn in (-180, -90, 0, 90):
        a = np.radians(turn + np.array([0, 0, 45, 90]))
        quadrant = shapely.polygons(np.stack((np.cos(a), np.sin(a)), -1) * np.array([[0], [400], [600], [400]]))
        for part in _polygons([shapely.intersection(whole, quadrant)]):
            piece = _unrolled(shapely.get_coordinates(part)[:-1], turn, side)
            pieces.append(shapely.set_precision(shapely.make_valid(shapely.polygons(piece)), 10.0**-digits))
    return _geometry([shapely.union_all(pieces, grid_size=10.0**-digits)], digits)


def _halved(points: Array) -> Array:
    """A ring ``[m, 2]`` as seen from a pole, with more points where it turns around that."""
    for _ in range(HALVINGS):
        ends = np.roll(points, -1, 0)
        turn = np.arctan2(points[:, 0] * ends[:, 1] - points[:, 1] * ends[:, 0], (points * ends).sum(1))
        fast = np.flatnonzero(np.abs(turn) > np.radians(TURN))
        points = np.insert(points, fast + 1, (points[fast] + ends[fast]) / 2, 0)
    return points


def _unrolled(points: Array, turn: int, side: int) -> Array:
    """Longitude and latitude of a ring within the quadrant that begins at ``turn`` degrees, as seen from a pole."""
    far = np.hypot(*points.T)
    pole = far < AT_POLE
    points, far, pole = (part[~(pole & np.roll(pole, 1))] for part in (points, far, pole))
    lon = turn + (np.degrees(np.arctan2(points[:, 1], points[:, 0])) - turn + 180) % 360 - 180
    lon = lon.clip(turn, turn + 90)
    ring: list[tuple[float, float]] = []
    for number in range(len(lon)):
        if pole[number]:
            ring += [(lon[number - 1], side * 90.0), (lon[(number + 1) % len(lon)], side * 90.0)]
        else:
            ring.append((lon[number], side * (90 - far[number])))
    return np.array(ring)


def _polygons(shapes: Iterable[Any]) -> list[Any]:
    """The parts that have an area."""
    import shapely

    parts = shapely.get_parts(shapely.get_parts(np.array(list(shapes), object)))
    return [part for part in parts if shapely.get_type_id(part) == 3 and shapely.area(part) > 0]


def _geometry(shapes: Iterable[Any], digits: int) -> dict[str, Any]:
    import shapely
    from shapely.geometry.polygon import orient

    parts = [
        [shapely.get_coordinates(ring).round(digits).tolist() for ring in (own.exterior, *own.interiors)]
        for own in map(orient, _polygons(shapes))
    ]
    if len(parts) == 1:
        return {"type": "Polygon", "coordinates": parts[0]}
    return {"type": "MultiPolygon", "coordinates": parts}
