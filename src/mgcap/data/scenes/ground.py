"""Ground that several scenes share."""

from __future__ import annotations

from mgcap.data import drawing as d
from mgcap.data.drawing import Canvas


def meadow(c: Canvas) -> None:
    """Grass, green or dry."""
    c.ground(c.pick(d.GRASS), c.pick(d.GRASS), c.uniform(8, 25))


def earth(c: Canvas) -> None:
    """Bare soil, with grass or without."""
    c.ground(c.pick(d.SOIL), c.pick(d.GRASS if c.chance(0.4) else d.SOIL), c.uniform(8, 25))
