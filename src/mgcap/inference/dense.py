r"""A block of a raster through the network at once: every window of a grid takes its positions from the same features.

The Gaussian matrix of a window is a mean over its positions, whoever else uses them. So windows that overlap share the
network's work, which is nearly all of it; a window is a gather, a product and a spectral layer. The block is seen once
at each granularity and rotation, at the scale at which a tile would be seen, in pieces that overlap a little. Rotated
features are put where they belong on the ground, so that a window has the same places at every quarter turn. What
surrounds a window is what is there, not the border of a tile; where the corners of a rotated window leave its tile,
they show its surroundings.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mgcap.config import MGCAPConfig
from mgcap.embedding import gaussian_of_positions
from mgcap.inference.engines import Engine
from mgcap.inference.engines.torch import keep_freed_memory
from mgcap.inference.forward import describe, embed_reduced
from mgcap.inference.layout import HALO, MULTIPLE, Layout
from mgcap.inference.pipeline import prefetch
from mgcap.model import MGCAP
from mgcap.pooling import pool_rotations
from mgcap.threads import side_by_side
from mgcap.views import PADDED_SCALE, sample_frames

#: The largest side of a piece.
PIECE = 1280
#: Quarter turns of a piece that the network sees at the same time.
TOGETHER = 2
#: Windows half way between two positions take the second, whatever the rounding.
TIE = 1e-3
#: Windows whose matrices are made together.
WINDOWS = 8
#: Whether networks are dense, by the side of a view: to find out they must see two.
_DENSE: WeakKeyDictionary[nn.Module, dict[int, bool]] = WeakKeyDictionary()


class Described(NamedTuple):
    """The windows of a block."""

    descriptors: Tensor  #: ``[n, d]``
    rotations: Tensor  #: ``[n]``: the number of the rotation that won most entries


@torch.inference_mode()
def describe_block(model: MGCAP, engine: Engine, layout: Layout, image: Tensor, chosen: Collection[int]) -> Described:
    """Describe windows of a block.

    Args:
        model: Its configuration and reduction count.
        engine: Computes its backbones.
        layout: Where the windows are.
        image: ``[3, side, side]`` in [0, 1], of any precision; at least the side that the layout asks for.
        chosen: Numbers of the windows that are wanted.
    """
    keep_freed_memory()
    wanted = sorted(chosen)
    canvases = [list(_canvases(model, engine, layout, g)) for g in range(len(model.config.granularities))]
    _fill(model, engine, layout, image, [(canvas, canvas.corners(wanted)) for own in canvases for canvas in own])
    parts = [wanted[start : start + WINDOWS] for start in range(0, len(wanted), WINDOWS)]
    found = side_by_side(lambda windows: _describe(canvases, windows, model.config), parts)
    return Described(*(torch.cat(every) for every in zip(*found, strict=True)))


@dataclass(eq=False)
class _Canvas:
    """Reduced features of a block at one granularity, and at those rotations that differ by quarter turns.

    Positions lie as on the image rotated by ``rest`` degrees, whatever the quarter turn.
    """

    granularity: int
    rest: float  #: what the rotations have beyond quarter turns, in degrees
    quarters: list[int]  #: the rotations as quarter turns beyond that
    numbers: list[int]  #: the numbers of the rotations among all
    frame: int  #: side in pixels of a view
    across: int  #: positions along a side of a window
    stride: int  #: pixels from one position to the next
    first: Tensor  #: ``[n, 2]``: the first position (x, y) of each window of the block
    features: Tensor  #: ``[quarters, h, w, C' + 1]``, the last channel is one

    @cached_property
    def pieces(self) -> tuple[int, list[int]]:
        """The side of a piece, and where pieces begin along each axis, in pixels."""
        inner = self.frame - 2 * HALO
        count = math.ceil(inner / (PIECE - 2 * HALO))
        step = math.ceil(inner / count / MULTIPLE) * MULTIPLE
        side = min(step + 2 * HALO, self.frame)
        return side, sorted({min(k * step, self.frame - side) for k in range(count)})

    def corners(self, wanted: list[int]) -> list[tuple[int, int]]:
        """The corners (x, y) of the pieces that windows need."""
        side, starts = self.pieces
        low = self.first[wanted] * self.stride
        high = low + self.across * self.stride
        needed = []
        for corner in itertools.product(starts, starts):
            begin = torch.tensor(corner)
            if bool(((low < begin + side) & (high > begin)).all(1).any()):
                needed.append(corner)
        return needed

    def put(self, corner: tuple[int, int], quarter: int, reduced: Tensor) -> None:
        """Take over what a piece has, ``[C', N]``, but for its border inside the frame."""
        side = math.isqrt(reduced.shape[-1])
        piece = reduced.reshape(-1, side, side).rot90(self.quarters[quarter], (-2, -1)).permute(1, 2, 0)
        border = HALO // self.stride
        (x, across), (y, down) = (
            (place // self.stride + begin, slice(begin, end))
            for place in corner
            for begin in [border if place else 0]
            for end in [side if place + self.pieces[0] >= self.frame else self.pieces[0] // self.stride - border]
        )
        part = piece[down, across]
        self.features[quarter, y : y + part.shape[0], x : x + part.shape[1], :-1] = part

    def windows(self, numbers: list[int]) -> Tensor:
        """Positions ``[n, quarters, N, C' + 1]`` of windows."""
        side, corners = self.across, self.first[numbers].tolist()
        parts = [self.features[:, y : y + side, x : x + side] for x, y in corners]
        return torch.stack(parts).flatten(2, 3)


def _canvases(model: MGCAP, engine: Engine, layout: Layout, granularity: int) -> Iterator[_Canvas]:
    """Empty canvases for all rotations at a granularity."""
    config, size = model.config, model.config.size
    across = math.isqrt(engine.features(torch.zeros(1, 3, size, size).to(model.mean), granularity).shape[-1])
    stride = stride_of(size, across)
    every = [divmod(round(angle, 9), 90.0) for angle in config.angles]
    for rest in sorted({rest for _, rest in every}):
        numbers = [number for number, (_, own) in enumerate(every) if own == rest]
        # at other angles than quarters a larger frame holds the whole block
        side = layout.view(granularity)
        frame = side if not rest else math.ceil(side * PADDED_SCALE / MULTIPLE) * MULTIPLE
        width = across + (frame - size) // stride
        first = _first_positions(layout.centres(granularity), rest, (frame - size) / 2, stride)
        shape = len(numbers), width, width, model.reduction.channels + 1
        yield _Canvas(
            granularity,
            rest,
            [int(every[number][0]) for number in numbers],
            numbers,
            frame,
            across,
            stride,
            first.clamp(0, width - across),
            torch.ones(shape, dtype=model.mean.dtype),
        )


def is_dense(model: MGCAP) -> bool:
    """Whether the features of a block are those of its views: not where every position attends to all others."""
    if any(getattr(backbone, "attends", False) for backbone in model.backbones):
        return False
    kept, size = _DENSE.setdefault(model.backbones[0], {}), model.config.size
    if size not in kept:
        kept[size] = _grows_with_its_view(model, size)
    return kept[size]


def _grows_with_its_view(model: MGCAP, size: int) -> bool:
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
    """The first position (x, y) of windows on the image rotated by an angle.

    Args:
        centres: From the middle of the frame, in pixels of a view, upright.
        angle: In degrees.
        margin: From the border of the frame to a window in its middle.
        stride: Pixels from one position to the next.
    """
    c, s = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    x, y = c * centres[:, 0] - s * centres[:, 1], s * centres[:, 0] + c * centres[:, 1]
    return ((torch.stack((x, y), -1) + margin) / stride + 0.5 + TIE).floor().long()


#: A canvas, and the corners of the pieces that are wanted of it.
_Work = tuple[_Canvas, list[tuple[int, int]]]


class _Piece(NamedTuple):
    """A piece of a canvas on its way, at some quarter turns."""

    canvas: _Canvas
    corner: tuple[int, int]
    quarters: list[int]  #: which of the canvas
    pixels: Tensor  #: views, later features


def _fill(model: MGCAP, engine: Engine, layout: Layout, image: Tensor, work: Sequence[_Work]) -> None:
    """Let the network see all pieces; sampling, network and reduction overlap where the engine allows it."""

    def pieces() -> Iterator[_Piece]:
        for canvas, corners in work:
            for corner in corners:
                view = (_sampled(image, layout, canvas, corner) - model.mean.cpu()) / model.std.cpu()
                for start in range(0, len(canvas.quarters), TOGETHER):
                    chosen = list(range(len(canvas.quarters)))[start : start + TOGETHER]
                    views = view.new_empty(len(chosen), *view.shape)  # stacked from strides it takes twice as long
                    for own, q in zip(views, chosen, strict=True):
                        own.copy_(view.rot90(-canvas.quarters[q], (-2, -1)))
                    yield _Piece(canvas, corner, chosen, views.to(model.mean.device))

    def compute(every: Iterable[_Piece]) -> Iterator[_Piece]:
        for piece in every:
            features = engine.resized(piece.canvas.pieces[0]).features(piece.pixels, piece.canvas.granularity)
            yield piece._replace(pixels=features.to(model.mean.dtype))

    def put(piece: _Piece, number: int) -> None:
        with torch.inference_mode():
            piece.canvas.put(piece.corner, piece.quarters[number], model.reduction(piece.pixels[number]))

    for piece in prefetch(compute(prefetch(pieces()))) if engine.overlaps else compute(pieces()):
        side_by_side(partial(put, piece), range(len(piece.quarters)))


def _sampled(image: Tensor, layout: Layout, canvas: _Canvas, corner: tuple[int, int]) -> Tensor:
    """A piece ``[3, side, side]`` as the network sees it, upright but for the canvas' own angle."""
    scale, side, across = layout.scale(canvas.granularity), canvas.pieces[0], image.shape[-1]
    c, s = math.cos(math.radians(canvas.rest)), math.sin(math.radians(canvas.rest))
    x, y = (place + side / 2 - canvas.frame / 2 for place in corner)
    right, down = layout.shift(canvas.granularity)
    middle = across / 2 + (c * x + s * y + right) / scale, across / 2 + (c * y - s * x + down) / scale
    half = math.ceil(side / 2 * (abs(c) + abs(s)) / scale) + 2
    left, top = (math.floor(own) - half for own in middle)
    rows, columns = (slice(max(begin, 0), max(begin + 2 * half, 1)) for begin in (top, left))
    border = [n for begin in (left, top) for n in (max(-begin, 0), max(begin + 2 * half - across, 0))]
    part = image[:, rows, columns].float()
    if any(border):  # a frame that is rotated may reach beyond the block
        part = F.pad(part[None], border, mode="replicate")[0]
    x, y = (middle[0] - left) / half - 1, (middle[1] - top) / half - 1
    return sample_frames(part[None], [canvas.rest], side, side / scale / (2 * half), centre=(x, y))[0, 0]


def _describe(canvases: Sequence[Sequence[_Canvas]], windows: list[int], config: MGCAPConfig) -> Described:
    with torch.inference_mode():
        pooled, votes = [], torch.zeros(len(windows), config.rotations, dtype=torch.int64)
        for own in canvases:
            order = torch.tensor([number for canvas in own for number in canvas.numbers]).argsort()
            positions = torch.cat([canvas.windows(windows) for canvas in own], 1)
            matrices = _embed(positions if len(own) == 1 else positions[:, order], config)
            pooled.append(pool_rotations(matrices, config.rotation_pooling))
            votes += _votes(matrices)
        return Described(describe(torch.stack(pooled, 1), config), votes.argmax(-1))


def _votes(matrices: Tensor) -> Tensor:
    """How many entries each rotation wins, ``[n, R]``; a tie goes to the first."""
    best, votes = matrices.amax(-3), []
    left = torch.ones_like(best, dtype=torch.bool)
    for rotation in matrices.unbind(-3):
        won = left & (rotation == best)
        left ^= won
        votes.append(won.count_nonzero((-2, -1)))
    return torch.stack(votes, -1)


def _embed(positions: Tensor, config: MGCAPConfig) -> Tensor:
    if config.embedding == "gaussian" and not config.unbiased:
        return gaussian_of_positions(positions, config.feature_norm, config.ridge)
    return embed_reduced(positions[..., :-1].mT, config)
