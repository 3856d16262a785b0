"""Scenes of what people build to live, park and play in."""

from __future__ import annotations

import math

import numpy as np

from mgcap.data import drawing as d
from mgcap.data.drawing import Canvas
from mgcap.data.scenes.ground import earth, meadow


def _residential(c: Canvas, plot: float, house: tuple[float, float], trees: float, depth: float) -> None:
    """Streets along x with plots on both sides; only the density differs between the three classes."""
    meadow(c)
    asphalt = c.pick(d.ASPHALT)
    street = 7.0
    pitch = 2 * depth + street
    first = -c.half - c.uniform(0, pitch)
    cross = c.uniform(-c.half * 0.6, c.half * 0.6)
    c.road([(cross, -c.half), (cross, c.half)], street, asphalt, marked=False)
    for row in range(math.ceil((c.metres + pitch) / pitch) + 1):
        y = first + row * pitch
        c.road([(-c.half, y), (c.half, y)], street, asphalt, marked=False)
        x = -c.half + c.uniform(0, plot)
        while x < c.half:
            for side in (-1, 1):
                yard = y + side * (street / 2 + depth * c.uniform(0.42, 0.55))
                if abs(x - cross) > street and c.chance(0.94):
                    c.rectangle(
                        x + plot * 0.25, y + side * (street / 2 + depth * 0.2), 3, depth * 0.42, 0, c.pick(d.CONCRETE)
                    )
                    c.house(x, yard, c.uniform(*house), c.uniform(*house) * 0.8, c.uniform(-0.05, 0.05))
                if c.chance(trees):
                    c.tree(
                        x + c.uniform(-0.5, 0.5) * plot,
                        y + side * (street / 2 + depth * c.uniform(0.1, 0.95)),
                        c.uniform(1.2, 3),
                    )
                if c.chance(0.25):
                    c.car(x, y + side * 2.4, 0.0)
            x += plot * c.uniform(0.95, 1.08)


def dense_residential(c: Canvas) -> None:
    """Houses almost wall to wall."""
    _residential(c, 12.0, (8.5, 10.5), 0.3, 15.0)


def medium_residential(c: Canvas) -> None:
    """Houses with yards between them."""
    _residential(c, 20.0, (10, 13), 0.9, 21.0)


def sparse_residential(c: Canvas) -> None:
    """One to three houses in the green, with a drive."""
    meadow(c)
    edge = c.uniform(0.5, 0.85) * c.half * (1 if c.chance(0.5) else -1)
    c.road([(-c.half, edge), (c.half, edge + c.uniform(-6, 6))], 5.5, c.pick(d.ASPHALT), marked=False)
    c.scatter_trees(int(c.metres * c.uniform(0.15, 0.6)))
    for i in range(int(c.rng.integers(1, 4))):
        x, y = c.uniform(-0.55, 0.55) * c.half, c.uniform(-0.5, 0.35) * edge + i * 4
        c.line([(x, y), (x + c.uniform(-8, 8), edge)], 3.0, c.pick(d.CONCRETE))
        angle = c.uniform(-0.6, 0.6)
        c.house(x, y, c.uniform(14, 20), c.uniform(9, 12), angle)
        if c.chance(0.5):
            c.house(x + 12 * math.cos(angle), y + 9, 7, 6, angle)
    c.scatter_trees(6)


def trailer_park(c: Canvas) -> None:
    """Long narrow homes side by side, slanted to the lane."""
    earth(c)
    asphalt, slant = c.pick(d.ASPHALT), c.uniform(0.9, 1.5)
    y = -c.half
    while y < c.half + 20:
        c.line([(-c.half, y), (c.half, y)], 6, asphalt)
        x = -c.half + c.uniform(0, 8)
        while x < c.half:
            for side in (-1, 1):
                if c.chance(0.93):
                    roof_y = y + side * 11
                    outline = c.box(x, roof_y, c.uniform(15, 17), 4.6, slant * side)
                    roof = d.shade(c.pick(d.CONCRETE), c.uniform(0.85, 1.15))
                    c.shadow(outline, 2.5)
                    c.polygon(outline, roof)
                    c.line([outline[0], outline[3]], 0.3, d.shade(roof, 0.8))
                if c.chance(0.3):
                    c.car(x + 4, y + side * 6.5, slant * side)
            x += c.uniform(8.2, 9.2)
        y += 38
    c.scatter_trees(8, radius=(1, 2))


def storage_tanks(c: Canvas) -> None:
    """Round tanks with rims and shadows on a works yard."""
    earth(c)
    c.line([(-c.half, c.uniform(-20, 20)), (c.half, c.uniform(-20, 20))], 6, c.pick(d.CONCRETE))
    radius = c.uniform(7, 17)
    pitch = radius * c.uniform(2.4, 3.2)
    across = max(1, int(c.metres / pitch))
    for i in range(across):
        for j in range(across):
            if not c.chance(0.72):
                continue
            x, y = (i - (across - 1) / 2) * pitch, (j - (across - 1) / 2) * pitch
            colour = d.shade(c.pick(d.CONCRETE), c.uniform(0.9, 1.25))
            ring = [(x + radius * math.cos(t), y + radius * math.sin(t)) for t in np.linspace(0, 2 * math.pi, 40)]
            c.shadow(ring, radius * 0.55)
            c.disc(x, y, radius, colour, d.shade(colour, 0.7))
            c.disc(
                x - 0.12 * radius * math.cos(c.sun),
                y - 0.12 * radius * math.sin(c.sun),
                radius * 0.8,
                d.shade(colour, 1.06),
            )
            c.line([(x, y), (x + radius * math.cos(i + j), y + radius * math.sin(i + j))], 0.5, d.shade(colour, 0.75))


def parking_lot(c: Canvas) -> None:
    """Rows of cars between painted lines."""
    c.ground(c.pick(d.ASPHALT), c.pick(d.ASPHALT), contrast=0.15)
    full = c.uniform(0.5, 0.95)
    y = -c.half + c.uniform(0, 8)
    while y < c.half + 8:
        for x in np.arange(-c.half, c.half, 2.8):
            for side in (-1, 1):
                c.line([(x, y), (x, y + side * 5)], 0.18, d.WHITE)
                if c.chance(full):
                    c.car(x + 1.4, y + side * 2.7 + c.uniform(-0.3, 0.3), math.pi / 2)
        if c.chance(0.35):
            for x in np.arange(-c.half, c.half, 16):
                c.tree(x, y, c.uniform(1.2, 2))
        y += 17.5


def tennis_court(c: Canvas) -> None:
    """One to four courts with their lines among trees."""
    meadow(c)
    c.scatter_trees(int(c.uniform(10, 35)))
    count, surround = int(c.rng.integers(1, 5)), c.pick(((92, 112, 88), (150, 98, 80), (104, 120, 104)))
    court = c.pick(((76, 104, 128), (96, 124, 92), (160, 104, 84), (84, 98, 132)))
    c.rectangle(0, 0, 42, count * 18 + 6, 0, surround)
    for i in range(count):
        y = (i - (count - 1) / 2) * 18
        c.rectangle(0, y, 23.8, 11, 0, court)
        for across in (-5.5, -4.1, 4.1, 5.5):
            c.line([(-11.9, y + across), (11.9, y + across)], 0.22, d.WHITE)
        for along in (-11.9, -6.4, 6.4, 11.9):
            reach = 5.5 if abs(along) > 10 else 4.1
            c.line([(along, y - reach), (along, y + reach)], 0.22, d.WHITE)
        c.line([(-6.4, y), (6.4, y)], 0.22, d.WHITE)
        c.line([(0, y - 6.4), (0, y + 6.4)], 0.3, d.shade(court, 0.5))


def baseball_diamond(c: Canvas) -> None:
    """A fan of grass, a quarter disc of soil, an inner square, bases."""
    meadow(c)
    c.scatter_trees(15)
    soil, reach = c.pick(d.SOIL), c.uniform(70, 95)
    home = (-reach * 0.35, -reach * 0.35)
    for radius, colour in ((reach, c.pick(d.GRASS)), (29, soil)):
        arc = [
            (home[0] + radius * math.cos(t), home[1] + radius * math.sin(t)) for t in np.linspace(0, math.pi / 2, 40)
        ]
        c.polygon([home, *arc], colour)
    c.rectangle(home[0] + 11.5, home[1] + 11.5, 17, 17, 0, c.pick(d.GRASS))
    c.disc(home[0] + 11.5, home[1] + 11.5, 2.6, soil)
    c.disc(*home, 4.2, soil)
    for end in ((reach, 0.0), (0.0, reach)):
        c.line([home, (home[0] + end[0], home[1] + end[1])], 0.3, d.WHITE)
    for base in ((20, 0), (0, 20), (20, 20), (0, 0)):
        c.rectangle(home[0] + base[0], home[1] + base[1], 1, 1, 0, d.WHITE)
