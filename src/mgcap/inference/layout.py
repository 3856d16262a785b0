"""Where the windows of a block lie, and what the network is to see of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from mgcap.config import MGCAPConfig
from mgcap.model import MGCAP
from mgcap.views import PADDED_SCALE

#: Surroundings that the network sees beyond what is used of a piece, in pixels of a view: without them the borders of
#: pieces and blocks would show in the answers.
HALO = 48
#: Sides and places of pieces are multiples of it, so that their positions fall onto each other.
MULTIPLE = 32
#: The most windows along a side of a block, bytes of its features, and pixels of its image.
MOST_WINDOWS, MOST_BYTES, MOST_PIXELS = 40, 500 << 20, 36 << 20


@dataclass(frozen=True)
class Layout:
    """Windows around the middle of a square image: one for each pair of ``xs`` and ``ys``, row by row.

    Args:
        xs: The centres of its columns, in pixels of the image from its middle.
        ys: The centres of its rows.
        tile: Side of a tile in pixels of the image.
        config: Of the model.
        origin: Where the middle of the image lies, in pixels from a place that all blocks share: their positions are
            on one lattice, so that a window is the same in every block.
    """

    xs: tuple[float, ...]
    ys: tuple[float, ...]
    tile: float
    config: MGCAPConfig
    origin: tuple[float, float] = (0.0, 0.0)

    @cached_property
    def side(self) -> int:
        """The side of the image that the windows need with their surroundings, in pixels."""
        granularities = range(len(self.config.granularities))
        return max(math.ceil((self.view(g) + MULTIPLE) / self.scale(g)) + 1 for g in granularities)

    def scale(self, granularity: int) -> float:
        """Pixels of a view for one of the image."""
        c = self.config
        frame = PADDED_SCALE if c.frame == "padded" else 1.0
        return c.size / (self.tile * c.field_of_view * c.granularities[granularity] * frame)

    def view(self, granularity: int) -> int:
        """The side of the block as the network sees it at rotations by quarters."""
        span = 2 * max(map(abs, (*self.xs, *self.ys))) * self.scale(granularity)
        return math.ceil((span + self.config.size + 2 * HALO) / MULTIPLE + 1) * MULTIPLE  # one is for the lattice

    def shift(self, granularity: int) -> tuple[float, float]:
        """From the middle of the image to that of the network's frame (x, y), in pixels of a view."""
        corner = [place * self.scale(granularity) - self.view(granularity) / 2 for place in self.origin]
        x, y = (round(place / MULTIPLE) * MULTIPLE - place for place in corner)
        return x, y

    def centres(self, granularity: int) -> Tensor:
        """The centres of the windows, ``[n, 2]`` (x, y) from the middle of the frame, in pixels of a view."""
        middles = torch.cartesian_prod(*(torch.tensor(own, dtype=torch.float64) for own in (self.ys, self.xs))).flip(-1)
        return middles * self.scale(granularity) - torch.tensor(self.shift(granularity), dtype=torch.float64)


def windows_together(step: float, tile: float, model: MGCAP) -> int:
    """How many windows along a side a block may have: image and features of all rotations are kept until it is done.

    None if a single one takes too much.
    """
    count = MOST_WINDOWS
    positions = (model.config.size / 14) ** 2  # of most networks; one that has more takes more memory
    while count:
        layout = Layout((count * step / 2,), (0.0,), tile, model.config)
        areas = sum(layout.view(g) ** 2 for g in range(len(model.config.granularities)))
        features = 4 * model.reduction.channels * model.config.rotations * areas / positions
        if features <= MOST_BYTES and layout.side**2 <= MOST_PIXELS:
            break
        count = count * 3 // 4
    return count
