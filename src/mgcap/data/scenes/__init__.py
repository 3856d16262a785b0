"""What each synthetic class looks like.

Every painter draws around the origin, along the x axis; then ``synthetic`` rotates, scales, lights and degrades it.
"""

from __future__ import annotations

from collections.abc import Callable

from mgcap.data.drawing import Canvas
from mgcap.data.scenes import built, country, traffic

Painter = Callable[[Canvas], None]

_PAINTERS: tuple[Painter, ...] = (
    built.dense_residential,
    built.medium_residential,
    built.sparse_residential,
    built.trailer_park,
    built.storage_tanks,
    built.parking_lot,
    built.tennis_court,
    built.baseball_diamond,
    traffic.runway,
    traffic.freeway,
    traffic.railway,
    traffic.roundabout,
    traffic.intersection,
    traffic.harbour,
    country.forest,
    country.orchard,
    country.cropland,
    country.river,
    country.beach,
)

#: Class name -> painter, in the order of the names.
SCENES: dict[str, Painter] = {p.__name__: p for p in sorted(_PAINTERS, key=lambda p: p.__name__)}
