"""Scenes of what people travel on."""

from __future__ import annotations

import math

import numpy as np

from mgcap.data import drawing as d
from mgcap.data.drawing import Canvas
from mgcap.data.scenes.ground import earth, meadow


def runway(c: Canvas) -> None:
    """A wide strip with a dashed centre line, edges, threshold bars and tyre marks."""
    meadow(c)
    width = c.uniform(30, 42)
    asphalt = c.pick(d.ASPHALT)
    c.rectangle(0, 0, 2 * c.metres, width + 8, 0, d.shade(asphalt, 1.1))
    c.rectangle(0, 0, 2 * c.metres, width, 0, asphalt)
    for y in (-width / 2 + 1.5, width / 2 - 1.5):
        c.line([(-c.metres, y), (c.metres, y)], 0.9, d.WHITE)
    c.dashes((-c.metres, 0), (c.metres, 0), 0.9, 16, 12, d.WHITE)
    for _ in range(14):
        x, y = c.uniform(-c.half, c.half), c.uniform(-3, 3)
        c.line([(x, y), (x + c.uniform(15, 50), y)], 0.7, (*d.shade(asphalt, 0.6), 150))
    if c.chance(0.7):
        x = c.uniform(-0.5, 0.5) * c.half
        for i in range(12):
            y = (i - 5.5) * width / 14
            if abs(y) > 1.5:
                c.rectangle(x, y, 22, 1.5, 0, d.WHITE)
    if c.chance(0.6):
        x, side = c.uniform(-0.7, 0.7) * c.half, 1 if c.chance(0.5) else -1
        c.line([(x, 0.5 * side * width), (x + c.uniform(-20, 20), side * c.metres)], 16, d.shade(asphalt, 1.05))


def freeway(c: Canvas) -> None:
    """Two carriageways with a median, lane markings and traffic."""
    meadow(c)
    c.scatter_trees(18, clear=24)
    lanes, median = int(c.rng.integers(3, 5)), c.uniform(3, 9)
    width = lanes * 3.7
    asphalt = c.pick(d.ASPHALT)
    for side in (-1, 1):
        middle = side * (median / 2 + width / 2 + 2)
        c.rectangle(0, middle, 2 * c.metres, width + 4, 0, asphalt)
        for lane in range(lanes + 1):
            y = middle + (lane - lanes / 2) * 3.7
            if lane in (0, lanes):
                c.line([(-c.metres, y), (c.metres, y)], 0.3, d.WHITE)
            else:
                c.dashes((-c.metres, y), (c.metres, y), 0.3, 3.5, 8, d.WHITE)
        for lane in range(lanes):
            x = -c.half
            while (x := x + c.uniform(9, 45)) < c.half:
                c.car(x, middle + (lane + 0.5 - lanes / 2) * 3.7, 0.0 if side > 0 else math.pi)
    c.line([(-c.metres, 0), (c.metres, 0)], 0.6, c.pick(d.CONCRETE))


def railway(c: Canvas) -> None:
    """Parallel tracks: rails and sleepers on ballast."""
    meadow(c) if c.chance(0.5) else earth(c)
    c.scatter_trees(14, clear=20)
    tracks, gap = int(c.rng.integers(2, 6)), 5.0
    ballast = d.shade(c.pick(d.SOIL), 0.8)
    c.rectangle(0, 0, 2 * c.metres, tracks * gap + 4, 0, ballast)
    for track in range(tracks):
        y = (track - (tracks - 1) / 2) * gap
        x = -c.half
        while (x := x + 0.8) < c.half:
            c.rectangle(x, y, 0.3, 2.6, 0, d.shade(ballast, 0.55))
        for rail in (-0.75, 0.75):
            c.line([(-c.metres, y + rail), (c.metres, y + rail)], 0.22, (196, 190, 184))
        if c.chance(0.3):
            start, wagon = c.uniform(-c.half, 0), c.pick(d.ROOFS)
            for i in range(int(c.rng.integers(2, 6))):
                outline = c.box(start + i * 15, y, 13.6, 3.0, 0)
                c.shadow(outline, 3)
                c.polygon(outline, d.shade(wagon, c.uniform(0.8, 1.2)))


def roundabout(c: Canvas) -> None:
    """A ring road around an island, with three to five arms."""
    meadow(c)
    c.scatter_trees(20)
    asphalt, inner, width = c.pick(d.ASPHALT), c.uniform(9, 18), c.uniform(8, 11)
    arms = int(c.rng.integers(3, 6))
    for arm in range(arms):
        turn = 2 * math.pi * arm / arms + c.uniform(-0.2, 0.2)
        far = (math.cos(turn) * c.metres, math.sin(turn) * c.metres)
        c.road([(0, 0), far], 8, asphalt)
        for _ in range(2):
            at = c.uniform(inner + width + 6, c.half)
            c.car(math.cos(turn) * at - 2 * math.sin(turn), math.sin(turn) * at + 2 * math.cos(turn), turn)
    c.disc(0, 0, inner + width + 0.6, c.pick(d.CONCRETE))
    c.disc(0, 0, inner + width, asphalt)
    for i in range(3):
        turn = c.uniform(0, 2 * math.pi) + i
        at = inner + width / 2
        c.car(math.cos(turn) * at, math.sin(turn) * at, turn + math.pi / 2)
    c.disc(0, 0, inner, c.pick(d.CONCRETE))
    c.disc(0, 0, inner - 1.0, c.pick(d.GRASS))
    for _ in range(int(c.rng.integers(0, 6))):
        c.tree(c.uniform(-0.5, 0.5) * inner, c.uniform(-0.5, 0.5) * inner, c.uniform(1.5, 3))


def intersection(c: Canvas) -> None:
    """Two streets that cross, with stop lines, zebra crossings and buildings at the corners."""
    meadow(c)
    asphalt, width = c.pick(d.ASPHALT), c.uniform(11, 16)
    for i in (-1, 1):
        for j in (-1, 1):
            size = c.uniform(14, 24)
            c.house(i * (width + size * 0.7), j * (width + size * 0.7), size, size * c.uniform(0.6, 1), 0, flat=True)
    c.scatter_trees(10, clear=width)
    for turn in (0.0, math.pi / 2 + c.uniform(-0.3, 0.3)):
        along = (math.cos(turn) * c.metres, math.sin(turn) * c.metres)
        c.road([(-along[0], -along[1]), along], width, asphalt)
    c.rectangle(0, 0, width, width, 0, asphalt)
    for turn in (0, math.pi / 2, math.pi, 3 * math.pi / 2):
        cos, sin = math.cos(turn), math.sin(turn)
        for k in range(-3, 4):
            across, at = k * width / 8, width * 0.72
            c.rectangle(cos * at - sin * across, sin * at + cos * across, 3, 0.7, turn, d.WHITE)
        for _ in range(2):
            at, across = c.uniform(width, c.half), width / 4
            c.car(cos * at - sin * across, sin * at + cos * across, turn)


def harbour(c: Canvas) -> None:
    """Boats at piers."""
    c.water(np.ones((c.side, c.side), dtype=np.float32))
    shore = c.uniform(0.5, 0.95) * c.half
    c.rectangle(0, shore + c.half, 2 * c.metres, c.metres, 0, c.pick(d.CONCRETE))
    x = -c.half + c.uniform(0, 10)
    while x < c.half:
        c.rectangle(x, 0, 2.2, 2 * shore * c.uniform(0.8, 1.0), 0, c.pick(d.CONCRETE))
        for side in (-1, 1):
            y = -shore + 4
            while y < shore - 4:
                if c.chance(0.85):
                    _boat(c, x + side * 6.6, y, 0.0 if side > 0 else math.pi)
                y += c.uniform(4.2, 5.4)
        x += 27


def _boat(c: Canvas, x: float, y: float, angle: float) -> None:
    length, width = c.uniform(8, 10.5), c.uniform(2.6, 3.3)
    cos, sin = math.cos(angle), math.sin(angle)
    profile = ((-0.5, -0.45), (0.2, -0.5), (0.5, 0), (0.2, 0.5), (-0.5, 0.45))
    hull = [(x + cos * a * length - sin * b * width, y + sin * a * length + cos * b * width) for a, b in profile]
    c.shadow(hull, 0.8)
    c.polygon(hull, d.shade(d.WHITE, c.uniform(0.85, 1.1)))
    c.rectangle(x - cos, y - sin, length * 0.35, width * 0.6, angle, d.shade(c.pick(d.CARS), 0.8))
