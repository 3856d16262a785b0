r"""A block of a raster through the network at once: every window of a grid takes its positions from the same features.

The Gaussian matrix of a window is a mean over its positions, whoever else uses them. So windows that overlap share the
network's work, which is nearly all of it; a window is a gather, a product and a spectral layer. The block is seen once
at each granularity and rotation, at the scale at which a tile would be seen, in pieces that overlap a little. What
surrounds a window is what is there, not the border of a tile; where the corners of a rotated window leave its tile,
they show its surroundings.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import NamedTuple

import torch
from torch import Tensor

from mgcap.config import MGCAPConfig
from mgcap.embedding import gaussian_of_positions
from mgcap.inference.engines import Engine
from mgcap.inference.engines.torch import keep_freed_memory
from mgcap.inference.forward import describe, embed_reduced
from mgcap.inference.pipeline import prefetch
from mgcap.model import MGCAP
from mgcap.pooling import pool_rotations
from mgcap.threads import side_by_side
from mgcap.views import PADDED_SCALE, sample_frames

#: Surroundings that the network sees beyond what is used of a piece, in pixels of a view: without them the borders of
#: pieces and blocks would show in the answers.
HALO = 16
#: Sides and places of pieces are multiples of it, so that their positions fall onto each other.
MULTIPLE = 32
#: The largest side of a piece.
PIECE = 768
#: Pieces that the network sees at the same time.
TOGETHER = 4
#: Windows half way between two positions take the second, whatever the rounding.
TIE = 1e-3
#: Windows whose matrices are made together.
WINDOWS = 8
#: The most windows along a side of a block, and bytes of its features.
MOST_WINDOWS, MOST_BYTES = 48, 400 << 20


class Described(NamedTuple):
    """The windows of a block."""

    descriptors: Tensor  #: ``[n, d]``
    rotations: Tensor  #: ``[n]``: the number of the rotation that won most entries


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
        return max(math.ceil(self.crop(g)) for g in range(len(self.config.granularities)))

    def scale(self, granularity: int) -> float:
        """Pixels of a view for one of the image."""
        c = self.config
        frame = PADDED_SCALE if c.frame == "padded" else 1.0
        return c.size / (self.tile * c.field_of_view * c.granularities[granularity] * frame)

    def view(self, granularity: int) -> int:
        """The side of the block as the network sees it at rotations by quarters."""
        span = 2 * max(map(abs, (*self.xs, *self.ys))) * self.scale(granularity)
        return math.ceil((span + self.config.size + 2 * HALO) / MULTIPLE + 1) * MULTIPLE  # one is for the lattice

    def crop(self, granularity: int) -> float:
        """The side of that in pixels of the image."""
        return self.view(granularity) / self.scale(granularity)

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
    """How many windows along a side a block may have: features of all rotations are kept until it is done."""
    count = MOST_WINDOWS
    positions = (model.config.size / 14) ** 2  # of most networks; one that has more takes more memory
    while count > 1:
        layout = Layout((count * step / 2,), (0.0,), tile, model.config)
        areas = sum(layout.view(g) ** 2 for g in range(len(model.config.granularities)))
        if 4 * model.reduction.channels * model.config.rotations * areas / positions <= MOST_BYTES:
            break
        count = count * 3 // 4
    return count


@torch.inference_mode()
def describe_block(model: MGCAP, engine: Engine, layout: Layout, image: Tensor, chosen: Collection[int]) -> Described:
    """Describe windows of a block.

    Args:
        model: Its configuration and reduction count.
        engine: Computes its backbones.
        layout: Where the windows are.
        image: ``[3, side, side]`` in [0, 1], the side that the layout asks for.
        chosen: Numbers of the windows that are wanted.
    """
    keep_freed_memory()
    picture = ((image.to(model.mean) - model.mean) / model.std)[None]
    wanted = sorted(chosen)
    canvases = _canvases(model, engine, layout, wanted)
    _fill(model, engine, layout, picture, canvases)
    parts = [wanted[start : start + WINDOWS] for start in range(0, len(wanted), WINDOWS)]
    found = side_by_side(lambda windows: _describe(canvases, windows, model.config), parts)
    return Described(*(torch.cat(every) for every in zip(*found, strict=True)))


@dataclass(eq=False)
class _Canvas:
    """Reduced features of a block at one granularity and rotation, as they are filled in."""

    granularity: int
    angle: float
    frame: int  #: side in pixels of a view
    across: int  #: positions along a side of a window
    stride: int  #: pixels from one position to the next
    first: Tensor  #: ``[n, 2]``: the first position (x, y) of each window of the block
    features: Tensor  #: ``[h, w, C' + 1]``, the last channel is one
    corners: list[tuple[int, int]] = field(default_factory=list)  #: of its pieces, (x, y) in pixels
    piece: int = 0  #: side of a piece in pixels

    def windows(self, numbers: list[int]) -> Tensor:
        """Positions ``[n, N, C' + 1]`` of windows."""
        width, axis = self.features.shape[1], torch.arange(self.across)
        offsets = (axis[:, None] * width + axis).flatten()
        rows = self.features.flatten(0, 1)
        return torch.stack([rows[int(y) * width + int(x) + offsets] for x, y in self.first[numbers]])

    def cut(self, numbers: list[int]) -> None:
        """Cut the frame into pieces, of which those that no window needs are left out."""
        inner = self.frame - 2 * HALO
        count = math.ceil(inner / (PIECE - 2 * HALO))
        step = math.ceil(inner / count / MULTIPLE) * MULTIPLE
        self.piece = min(step + 2 * HALO, self.frame)
        starts = sorted({min(k * step, self.frame - self.piece) for k in range(count)})
        low = self.first[numbers] * self.stride
        high = low + self.across * self.stride
        for y in starts:
            for x in starts:
                corner = torch.tensor((x, y))
                if bool(((low < corner + self.piece) & (high > corner)).all(1).any()):
                    self.corners.append((x, y))

    def put(self, corner: tuple[int, int], reduced: Tensor) -> None:
        """Take over what a piece has, ``[C', N]``, but for its border inside the frame."""
        side = math.isqrt(reduced.shape[-1])
        piece = reduced.reshape(-1, side, side).permute(1, 2, 0)
        border = HALO // self.stride
        cuts = []
        for place in corner:
            begin = border if place else 0
            end = side if place + self.piece >= self.frame else side - border
            cuts.append((place // self.stride + begin, slice(begin, end)))
        (x, across), (y, down) = cuts
        part = piece[down, across]
        self.features[y : y + part.shape[0], x : x + part.shape[1], :-1] = part


def _canvases(model: MGCAP, engine: Engine, layout: Layout, wanted: list[int]) -> list[list[_Canvas]]:
    """For each granularity an empty canvas for each rotation."""
    config, size = model.config, model.config.size
    found = []
    for granularity in range(len(config.granularities)):
        across = math.isqrt(engine.features(torch.zeros(1, 3, size, size).to(model.mean), granularity).shape[-1])
        stride = stride_of(size, across)
        side = layout.view(granularity)
        own = []
        for angle in config.angles:
            # at other angles than quarters a larger frame holds the whole block
            frame = side if angle % 90 == 0 else math.ceil(side * PADDED_SCALE / MULTIPLE) * MULTIPLE
            width = across + (frame - size) // stride
            first = _first_positions(layout.centres(granularity), angle, (frame - size) / 2, stride)
            features = torch.ones(width, width, model.reduction.channels + 1, dtype=model.mean.dtype)
            canvas = _Canvas(granularity, angle, frame, across, stride, first.clamp(0, width - across), features)
            canvas.cut(wanted)
            own.append(canvas)
        found.append(own)
    return found


def is_dense(model: MGCAP) -> bool:
    """Whether the features of a block are those of its views: not where every position attends to all others."""
    if any(getattr(backbone, "attends", False) for backbone in model.backbones):
        return False
    size = model.config.size
    with torch.inference_mode():
        small, large = (
            model.backbones[0](torch.zeros(1, 3, side, side).to(model.mean)).shape for side in (size, size + MULTIPLE)
        )
    stride = stride_of(size, small[-1])
    square = small[-1] == small[-2] and large[-1] == large[-2]
    return square and MULTIPLE % stride == 0 and large[-1] - small[-1] == MULTIPLE // stride


def stride_of(size: int, across: int) -> int:
    """Pixels between positions of a network that makes ``across`` of them of ``size`` pixels: a power of two."""
    return 1 << round(math.log2(size / across))


def _first_positions(centres: Tensor, angle: float, margin: float, stride: int) -> Tensor:
    """The first position (x, y) of windows at an angle.

    Args:
        centres: From the middle of the block, in pixels of a view, upright.
        angle: In degrees.
        margin: From the border of the frame to a window in its middle.
        stride: Pixels from one position to the next.
    """
    if angle % 90 == 0:  # to whole positions first: the same ones at every quarter turn, and in every block
        centres = ((centres + margin) / stride + 0.5 + TIE).floor() * stride - margin
    c, s = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    x, y = c * centres[:, 0] - s * centres[:, 1], s * centres[:, 0] + c * centres[:, 1]
    return ((torch.stack((x, y), -1) + margin) / stride).round().long()


class _Pieces(NamedTuple):
    """Some pieces of a canvas on their way."""

    canvas: _Canvas
    corners: list[tuple[int, int]]
    pixels: Tensor  #: views, later features


def _fill(model: MGCAP, engine: Engine, layout: Layout, picture: Tensor, canvases: Sequence[Sequence[_Canvas]]) -> None:
    """Let the network see all pieces; sampling, network and reduction overlap where the engine allows it."""

    def pieces() -> Iterator[_Pieces]:
        for granularity, own in enumerate(canvases):
            wide = (
                1 / layout.scale(granularity) / picture.shape[-1]
            )  # of a pixel of a view, for the side of the picture
            x, y = (2 * wide * place for place in layout.shift(granularity))
            frame = layout.view(granularity)
            upright = sample_frames(picture, [0.0], frame, wide * frame, centre=(x, y))[0]
            for canvas in own:
                if canvas.angle % 90 == 0:
                    view = upright.rot90(-int(canvas.angle // 90), (-2, -1))
                else:
                    frame = canvas.frame
                    view = sample_frames(picture, [canvas.angle], frame, wide * frame, centre=(x, y))[0]
                for start in range(0, len(canvas.corners), TOGETHER):
                    corners = canvas.corners[start : start + TOGETHER]
                    side = canvas.piece
                    yield _Pieces(
                        canvas, corners, torch.cat([view[..., y : y + side, x : x + side] for x, y in corners])
                    )

    def compute(every: Iterable[_Pieces]) -> Iterator[_Pieces]:
        for canvas, corners, views in every:
            features = engine.resized(canvas.piece).features(views, canvas.granularity)
            yield _Pieces(canvas, corners, features.to(model.mean.dtype))

    def put(canvas: _Canvas, corner: tuple[int, int], features: Tensor) -> None:
        with torch.inference_mode():
            canvas.put(corner, model.reduction(features))

    for canvas, corners, features in prefetch(compute(prefetch(pieces()))) if engine.overlaps else compute(pieces()):
        own = partial(put, canvas)
        side_by_side(lambda pair, own=own: own(*pair), list(zip(corners, features, strict=True)))  # type: ignore[misc]


def _describe(canvases: Sequence[Sequence[_Canvas]], windows: list[int], config: MGCAPConfig) -> Described:
    with torch.inference_mode():
        pooled, votes = [], torch.zeros(len(windows), config.rotations, dtype=torch.int64)
        for own in canvases:
            matrices = _embed(torch.stack([canvas.windows(windows) for canvas in own], 1), config)
            pooled.append(pool_rotations(matrices, config.rotation_pooling))
            votes += (matrices == matrices.amax(-3, keepdim=True)).flatten(-2).sum(-1)
        return Described(describe(torch.stack(pooled, 1), config), votes.argmax(-1))


def _embed(positions: Tensor, config: MGCAPConfig) -> Tensor:
    if config.embedding == "gaussian" and not config.unbiased:
        return gaussian_of_positions(positions, config.feature_norm, config.ridge)
    return embed_reduced(positions[..., :-1].mT, config)
