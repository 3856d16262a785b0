"""Brushes for synthetic aerial scenes: ground, roads, roofs, trees, cars, water, in metres seen from above."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence

import numpy as np
from PIL import Image, ImageDraw

from mgcap.typing import Array

Colour = tuple[int, int, int]
Point = tuple[float, float]

GRASS: tuple[Colour, ...] = ((96, 116, 70), (118, 124, 78), (140, 132, 92), (84, 104, 66), (150, 140, 104))
SOIL: tuple[Colour, ...] = ((150, 124, 96), (168, 146, 116), (130, 108, 84), (176, 160, 132))
ASPHALT: tuple[Colour, ...] = ((92, 92, 94), (112, 110, 108), (134, 130, 126), (76, 78, 82))
CONCRETE: tuple[Colour, ...] = ((172, 168, 160), (190, 186, 178), (156, 152, 146))
WATER: tuple[Colour, ...] = ((52, 74, 86), (66, 92, 98), (80, 98, 90), (44, 62, 82), (92, 110, 104))
ROOFS: tuple[Colour, ...] = (
    *((150, 92, 76), (122, 108, 100), (96, 92, 94), (170, 158, 146), (136, 116, 96), (112, 76, 66), (186, 180, 172)),
)
LEAVES: tuple[Colour, ...] = ((56, 78, 44), (68, 90, 50), (48, 68, 42), (84, 98, 58), (74, 84, 48))
CARS: tuple[Colour, ...] = (
    (216, 216, 218),
    (60, 62, 68),
    (150, 34, 36),
    (44, 62, 110),
    (128, 130, 134),
    (232, 230, 224),
)
WHITE: Colour = (222, 222, 216)


def shade(colour: Sequence[int], factor: float) -> Colour:
    """A colour made lighter or darker."""
    r, g, b = (int(min(max(c * factor, 0), 255)) for c in colour)
    return r, g, b


def clouds(rng: np.random.Generator, side: int, cell: float, octaves: int = 4) -> Array:
    """Fractal noise ``[side, side]`` of mean 0 and about unit spread; ``cell`` is the largest grain in pixels."""
    total = np.zeros((side, side), dtype=np.float32)
    for octave in range(octaves):
        grains = max(2, math.ceil(side / max(cell / 2**octave, 1.0)))
        coarse = Image.fromarray(rng.standard_normal((grains, grains)).astype(np.float32))
        total += np.asarray(coarse.resize((side, side), Image.Resampling.BICUBIC)) / 1.6**octave
    deviation = float(total.std())
    out: Array = (total - total.mean()) / (deviation if deviation > 0 else 1.0)
    return out


class Canvas:
    """A square piece of land in metres, the origin in its middle, with a sun that casts shadows.

    Args:
        rng: The only source of chance.
        side: Side in pixels.
        metres: Side in metres.
    """

    def __init__(self, rng: np.random.Generator, side: int, metres: float) -> None:
        self.rng, self.side, self.metres = rng, side, metres
        self.ppm = side / metres
        self.half = metres / 2
        self.sun = rng.uniform(0, 2 * math.pi)
        self.shadow_length = rng.uniform(0.4, 1.1)
        self.image = Image.new("RGB", (side, side))
        self.draw = ImageDraw.Draw(self.image, "RGBA")

    # chance

    def pick(self, palette: Sequence[Colour], spread: float = 0.1) -> Colour:
        """A colour of a palette, a little lighter or darker."""
        return shade(palette[int(self.rng.integers(len(palette)))], float(self.rng.uniform(1 - spread, 1 + spread)))

    def uniform(self, low: float, high: float) -> float:
        """A number between two others."""
        return float(self.rng.uniform(low, high))

    def chance(self, probability: float) -> bool:
        """True with a probability."""
        return bool(self.rng.random() < probability)

    # surfaces

    def ground(self, colour: Colour, other: Colour, grain: float = 14.0, contrast: float = 0.35) -> None:
        """Cover everything with a texture between two colours."""
        noise = clouds(self.rng, self.side, grain * self.ppm)
        fine = clouds(self.rng, self.side, 1.2 * self.ppm, 2)
        mix = np.clip(0.5 + contrast * noise, 0, 1)[..., None]
        pixels = (1 - mix) * np.array(colour) + mix * np.array(other)
        self.paste(pixels * (1 + 0.06 * fine[..., None]))

    def paste(self, pixels: Array, mask: Array | None = None) -> None:
        """Lay pixels ``[side, side, 3]`` over the picture where the mask says so."""
        picture = Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))
        self.image.paste(picture, None if mask is None else Image.fromarray((mask * 255).astype(np.uint8)))

    def positions(self) -> tuple[Array, Array]:
        """X and y in metres of every pixel."""
        axis = (np.arange(self.side, dtype=np.float32) + 0.5) / self.ppm - self.half
        x, y = np.meshgrid(axis, axis)
        return x, y

    def water(self, mask: Array) -> None:
        """Water with ripples where the mask is 1."""
        colour = np.array(self.pick(WATER), dtype=np.float32)
        ripples = clouds(self.rng, self.side, 2.5 * self.ppm, 3)
        depth = clouds(self.rng, self.side, 40 * self.ppm, 2)
        self.paste(colour * (1 + 0.05 * ripples + 0.08 * depth)[..., None], mask)

    # shapes

    def pixels(self, points: Iterable[Point]) -> list[Point]:
        """Metres to pixels."""
        return [((x + self.half) * self.ppm, (y + self.half) * self.ppm) for x, y in points]

    def polygon(self, points: Iterable[Point], fill: Sequence[int]) -> None:
        """Fill a polygon given in metres."""
        self.draw.polygon(self.pixels(points), fill=tuple(fill))

    def line(self, points: Iterable[Point], width: float, fill: Sequence[int]) -> None:
        """A line of a width in metres."""
        self.draw.line(self.pixels(points), fill=tuple(fill), width=max(1, round(width * self.ppm)), joint="curve")

    def dashes(self, start: Point, end: Point, width: float, on: float, off: float, fill: Sequence[int]) -> None:
        """A dashed straight line."""
        length = math.dist(start, end)
        direction = ((end[0] - start[0]) / length, (end[1] - start[1]) / length)
        along = 0.0
        while along < length:
            stop = min(along + on, length)
            ends = [(start[0] + t * direction[0], start[1] + t * direction[1]) for t in (along, stop)]
            self.line(ends, width, fill)
            along += on + off

    def disc(
        self, x: float, y: float, radius: float, fill: Sequence[int] | None, outline: Colour | None = None
    ) -> None:
        """A filled circle, a ring, or both."""
        (left, top), (right, bottom) = self.pixels([(x - radius, y - radius), (x + radius, y + radius)])
        width = max(1, round(0.35 * self.ppm))
        self.draw.ellipse((left, top, right, bottom), None if fill is None else tuple(fill), outline, width)

    @staticmethod
    def box(x: float, y: float, length: float, width: float, angle: float) -> list[Point]:
        """The corners of a rectangle rotated by an angle in radians."""
        cos, sin = math.cos(angle), math.sin(angle)
        corners = ((-1, -1), (1, -1), (1, 1), (-1, 1))
        halves = [(a * length / 2, b * width / 2) for a, b in corners]
        return [(x + cos * a - sin * b, y + sin * a + cos * b) for a, b in halves]

    def rectangle(self, x: float, y: float, length: float, width: float, angle: float, fill: Sequence[int]) -> None:
        """A filled rectangle."""
        self.polygon(self.box(x, y, length, width, angle), fill)

    def shadow(self, outline: list[Point], height: float) -> None:
        """The shadow of something flat-topped."""
        dx, dy = (f(self.sun) * height * self.shadow_length for f in (math.cos, math.sin))
        count = len(outline)
        for i in range(count):
            (ax, ay), (bx, by) = outline[i], outline[(i + 1) % count]
            self.polygon([(ax, ay), (bx, by), (bx + dx, by + dy), (ax + dx, ay + dy)], (18, 20, 28))
        self.polygon([(x + dx, y + dy) for x, y in outline], (18, 20, 28))

    # things

    def house(self, x: float, y: float, length: float, width: float, angle: float, flat: bool = False) -> None:
        """A building with a gable roof, or a flat one."""
        roof = self.pick(ROOFS)
        outline = self.box(x, y, length, width, angle)
        self.shadow(outline, self.uniform(3, 5))
        self.polygon(outline, roof)
        if flat:
            self.polygon(self.box(x, y, length - 0.8, width - 0.8, angle), shade(roof, 1.08))
            return
        lit = 1.0 + 0.22 * math.sin(angle - self.sun)
        offset = (-math.sin(angle) * width / 4, math.cos(angle) * width / 4)
        for sign, light in ((1, lit), (-1, 2.0 - lit)):
            self.rectangle(x + sign * offset[0], y + sign * offset[1], length, width / 2, angle, shade(roof, light))
        ridge = [(x + s * length / 2 * math.cos(angle), y + s * length / 2 * math.sin(angle)) for s in (-1, 1)]
        self.line(ridge, 0.25, shade(roof, 1.25))

    def tree(self, x: float, y: float, radius: float) -> None:
        """A crown of lighter and darker tufts, with its shadow."""
        leaf = self.pick(LEAVES)
        dx, dy = (f(self.sun) * radius * self.shadow_length for f in (math.cos, math.sin))
        self.disc(x + dx, y + dy, radius, (22, 26, 24))
        self.disc(x, y, radius, shade(leaf, 0.8))
        for _ in range(7):
            turn, far = self.uniform(0, 2 * math.pi), self.uniform(0.1, 0.6) * radius
            tx, ty = x + math.cos(turn) * far, y + math.sin(turn) * far
            towards_sun = -(math.cos(turn - self.sun)) * far / radius
            self.disc(
                tx, ty, radius * self.uniform(0.25, 0.5), shade(leaf, 1 + 0.5 * towards_sun + self.uniform(-0.1, 0.1))
            )

    def car(self, x: float, y: float, angle: float) -> None:
        """A car with its windows."""
        body = self.pick(CARS)
        outline = self.box(x, y, 4.4, 1.9, angle)
        self.shadow(outline, 1.2)
        self.polygon(outline, body)
        self.rectangle(x - 0.2 * math.cos(angle), y - 0.2 * math.sin(angle), 2.2, 1.6, angle, shade(body, 0.55))
        self.rectangle(x - 0.2 * math.cos(angle), y - 0.2 * math.sin(angle), 1.5, 1.5, angle, shade(body, 0.95))

    def road(self, points: list[Point], width: float, colour: Colour, marked: bool = True) -> None:
        """A street with pale edges and, if marked, a dashed centre line."""
        self.line(points, width + 1.2, self.pick(CONCRETE))
        self.line(points, width, colour)
        if marked:
            for start, end in itertools.pairwise(points):
                self.dashes(start, end, 0.25, 3, 4, (206, 196, 140))

    def scatter_trees(self, count: int, clear: float = 0.0, radius: tuple[float, float] = (1.4, 3.4)) -> None:
        """Trees anywhere but in a central band of a half-width."""
        for _ in range(count):
            x, y = (self.uniform(-self.half, self.half) for _ in range(2))
            if abs(y) > clear:
                self.tree(x, y, self.uniform(*radius))
