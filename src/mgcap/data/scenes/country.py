"""Scenes of fields, woods and water."""

from __future__ import annotations

import math

import numpy as np

from mgcap.data import drawing as d
from mgcap.data.drawing import Canvas
from mgcap.data.scenes.ground import earth, meadow


def forest(c: Canvas) -> None:
    """Crowns everywhere."""
    c.ground(c.pick(d.LEAVES), c.pick(d.GRASS))
    spacing = c.uniform(3.2, 5.0)
    for x in np.arange(-c.half, c.half, spacing):
        for y in np.arange(-c.half, c.half, spacing):
            if c.chance(0.92):
                jitter = 0.6 * spacing
                c.tree(x + c.uniform(-jitter, jitter), y + c.uniform(-jitter, jitter), spacing * c.uniform(0.45, 0.85))


def orchard(c: Canvas) -> None:
    """The same trees in straight rows."""
    earth(c) if c.chance(0.6) else meadow(c)
    row, step, radius = c.uniform(5.5, 8.5), c.uniform(4.2, 6), c.uniform(1.5, 2.3)
    for y in np.arange(-c.half, c.half, row):
        for x in np.arange(-c.half, c.half, step):
            if c.chance(0.95):
                c.tree(x + c.uniform(-0.3, 0.3), y + c.uniform(-0.3, 0.3), radius * c.uniform(0.8, 1.15))


def cropland(c: Canvas) -> None:
    """Fields with furrows."""
    earth(c)
    edge = c.uniform(-0.5, 0.5) * c.half
    x, y = c.positions()
    for upper in (True, False):
        colour = np.array(c.pick(d.GRASS if c.chance(0.6) else d.SOIL), dtype=np.float32)
        pitch, tilt = c.uniform(1.5, 4.0), c.uniform(-0.15, 0.15) + (math.pi / 2 if c.chance(0.25) else 0)
        phase = 2 * math.pi * (y * math.cos(tilt) - x * math.sin(tilt)) / pitch
        light = 1 + 0.12 * np.sin(phase) + 0.08 * d.clouds(c.rng, c.side, 18 * c.ppm)
        c.paste(colour * light[..., None], ((y > edge + 1.5) if upper else (y < edge - 1.5)).astype(np.float32))
    c.line([(-c.half, edge), (c.half, edge)], 3, c.pick(d.SOIL))


def river(c: Canvas) -> None:
    """A winding band of water between banks."""
    meadow(c)
    x, y = c.positions()
    bend = c.uniform(6, 18) * np.sin(2 * math.pi * x / c.uniform(70, 150) + c.uniform(0, 6.28))
    distance = np.abs(y - bend - 4 * d.clouds(c.rng, c.side, 30 * c.ppm, 3))
    width = c.uniform(9, 20)
    c.paste(np.full((c.side, c.side, 3), c.pick(d.SOIL), dtype=np.float32), (distance < width + 3).astype(np.float32))
    c.water((distance < width).astype(np.float32))
    c.scatter_trees(int(c.uniform(20, 70)), clear=width + 18)


def beach(c: Canvas) -> None:
    """Sand, surf and sea."""
    c.ground(c.pick(d.SOIL), d.shade(c.pick(d.CONCRETE), 1.1), contrast=0.2)
    _, y = c.positions()
    line = y - c.uniform(-0.3, 0.3) * c.half - 3 * d.clouds(c.rng, c.side, 35 * c.ppm, 3)
    c.water(np.clip(line / 3, 0, 1).astype(np.float32))
    for offset in (2.0, c.uniform(8, 12), c.uniform(18, 26)):
        foam = np.exp(-(((line - offset) / 1.6) ** 2)) * np.clip(d.clouds(c.rng, c.side, 12 * c.ppm) + 0.8, 0, 1)
        c.paste(np.full((c.side, c.side, 3), 228.0, dtype=np.float32), foam.clip(0, 1).astype(np.float32))
    for _ in range(int(c.rng.integers(0, 12))):
        c.disc(c.uniform(-c.half, c.half), -c.half * c.uniform(0.4, 1), c.uniform(0.8, 1.6), c.pick(d.CARS))
