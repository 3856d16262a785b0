"""What each synthetic class looks like.

Every painter draws around the origin, along the x axis; then ``synthetic`` turns, scales, lights and spoils it.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from mgcap.data import drawing as d
from mgcap.data.drawing import Canvas

Painter = Callable[[Canvas], None]


def _meadow(c: Canvas) -> None:
    c.ground(c.pick(d.GRASS), c.pick(d.GRASS), c.uniform(8, 25))


def _earth(c: Canvas) -> None:
    c.ground(c.pick(d.SOIL), c.pick(d.GRASS if c.chance(0.4) else d.SOIL), c.uniform(8, 25))


def _residential(c: Canvas, plot: float, house: tuple[float, float], trees: float, depth: float) -> None:
    """Streets along x with plots on both sides; only the density differs between the three classes."""
    _meadow(c)
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
    _meadow(c)
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
    _earth(c)
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


def runway(c: Canvas) -> None:
    """A wide strip with a dashed centre line, edges, threshold bars and tyre marks."""
    _meadow(c)
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
    _meadow(c)
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
    _meadow(c) if c.chance(0.5) else _earth(c)
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


def storage_tanks(c: Canvas) -> None:
    """Round tanks with rims and shadows on a works yard."""
    _earth(c)
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


def roundabout(c: Canvas) -> None:
    """A ring road around an island, with three to five arms."""
    _meadow(c)
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
    _meadow(c)
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
    _earth(c) if c.chance(0.6) else _meadow(c)
    row, step, radius = c.uniform(5.5, 8.5), c.uniform(4.2, 6), c.uniform(1.5, 2.3)
    for y in np.arange(-c.half, c.half, row):
        for x in np.arange(-c.half, c.half, step):
            if c.chance(0.95):
                c.tree(x + c.uniform(-0.3, 0.3), y + c.uniform(-0.3, 0.3), radius * c.uniform(0.8, 1.15))


def cropland(c: Canvas) -> None:
    """Fields with furrows."""
    _earth(c)
    edge = c.uniform(-0.5, 0.5) * c.half
    x, y = c.positions()
    for upper in (True, False):
        colour = np.array(c.pick(d.GRASS if c.chance(0.6) else d.SOIL), dtype=np.float32)
        pitch, tilt = c.uniform(1.5, 4.0), c.uniform(-0.15, 0.15) + (math.pi / 2 if c.chance(0.25) else 0)
        phase = 2 * math.pi * (y * math.cos(tilt) - x * math.sin(tilt)) / pitch
        light = 1 + 0.12 * np.sin(phase) + 0.08 * d.clouds(c.rng, c.side, 18 * c.ppm)
        c.paste(colour * light[..., None], ((y > edge + 1.5) if upper else (y < edge - 1.5)).astype(np.float32))
    c.line([(-c.half, edge), (c.half, edge)], 3, c.pick(d.SOIL))


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
    _meadow(c)
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
    _meadow(c)
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


def river(c: Canvas) -> None:
    """A winding band of water between banks."""
    _meadow(c)
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


#: Class name -> painter, in the order of the names.
SCENES: dict[str, Painter] = {
    painter.__name__: painter
    for painter in sorted(
        (
            *(dense_residential, medium_residential, sparse_residential, trailer_park, runway, freeway, railway),
            *(storage_tanks, roundabout, intersection, harbour, forest, orchard, cropland, parking_lot),
            *(tennis_court, baseball_diamond, river, beach),
        ),
        key=lambda painter: painter.__name__,
    )
}
