"""What a model has seen: a compact sample of its training descriptors, and how far images it had not seen were from it.

Descriptors are projected to a few hundred numbers, centred and scaled to length one; how far an image is from the
sample is one minus the largest cosine. Training images that were held out, those of one fold from those of the others,
say which distances are usual: an image that lies farther than nearly all of these did shows something that the model
has never seen.
"""

from __future__ import annotations

import io
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from mgcap.errors import MgcapError
from mgcap.inference.projection import Projection, projection_for
from mgcap.model import MGCAP
from mgcap.persistence.layout import QUANTILES
from mgcap.typing import Array

#: Numbers that are kept of each descriptor, at most, and bytes of all, so that a model file grows by less than 1 MB.
LENGTH, BYTES = 128, 600_000
#: Descriptors that are compared with the sample at a time.
TOGETHER = 16_384


@dataclass(frozen=True)
class Sketch:
    """Descriptors in fewer numbers where no projection ships: sums of entries with signs, drawn from a fixed seed.

    Args:
        length: Numbers of a descriptor.
        size: Numbers of a sketch.
    """

    length: int
    size: int = LENGTH

    @cached_property
    def _draws(self) -> tuple[Tensor, Tensor]:
        rng = np.random.default_rng(20)
        places, signs = rng.integers(self.size, size=self.length), rng.integers(2, size=self.length) * 2 - 1
        return torch.from_numpy(places), torch.from_numpy(signs).float()

    def __call__(self, descriptors: Tensor) -> Tensor:
        """Sketches ``[n, size]`` of descriptors ``[n, d]``."""
        places, signs = self._draws
        return torch.zeros(len(descriptors), self.size).index_add_(1, places, descriptors.float() * signs)


@dataclass(frozen=True, eq=False)
class TrainingSample:
    """A sample of what a model was trained on.

    Attributes:
        vectors: ``[n, p]`` int8: directions from the mean, times 127.
        mean: ``[p]``: of the reduced descriptors.
        targets: ``[n]``: the class of each by number.
        distances: ``[QUANTILES]``: of held-out images, rising.
        sheet: Small pictures of the first of them side by side, as the bytes of a WebP file; empty if there are none.
        pictured: How many have pictures.
    """

    vectors: Tensor
    mean: Tensor
    targets: Tensor
    distances: Tensor
    sheet: Tensor
    pictured: Tensor

    @cached_property
    def _directions(self) -> Tensor:
        return F.normalize(self.vectors.float(), dim=1)

    def nearest(self, reduced: Tensor, count: int = 1) -> tuple[Tensor, Tensor]:
        """Distances ``[n, count]`` of reduced descriptors from the nearest of the sample, and which these are."""
        own = self._directions
        found = [
            (_directions(part, self.mean) @ own.T).topk(min(count, len(own)), 1)
            for part in torch.split(reduced.float(), TOGETHER)
        ]
        if not found:
            return torch.zeros(0, count), torch.zeros(0, count, dtype=torch.int64)
        return 1 - torch.cat([part.values for part in found]), torch.cat([part.indices for part in found])

    def distance(self, reduced: Tensor) -> Tensor:
        """Distance ``[n]`` of reduced descriptors from the sample."""
        return self.nearest(reduced)[0][:, 0]

    def threshold(self, alpha: float) -> float:
        """The distance that a share ``alpha`` of held-out images exceeded."""
        if not 0 < alpha < 1:
            raise MgcapError(f"`unknown` takes 0 (off) to 1, not {alpha}")
        levels = np.linspace(0, 1, len(self.distances))
        return float(np.interp(1 - alpha, levels, self.distances.numpy()))

    def pictures(self) -> Array | None:
        """Small pictures ``[m, side, side, 3]`` of the first of the sample; None if there are none."""
        from PIL import Image

        count = int(self.pictured)
        across = _across(count)
        try:
            with Image.open(io.BytesIO(self.sheet.numpy().tobytes()), formats=("WEBP",)) as image:
                side = image.width // across
                if max(image.size) > MAX_SHEET or image.size != (across * side, -(-count // across) * side):
                    return None
                pixels = np.asarray(image.convert("RGB"))
        except Exception:  # a strange model file has no pictures
            return None
        rows = pixels.reshape(-1, side, across, side, 3).swapaxes(1, 2)
        found: Array = rows.reshape(-1, side, side, 3)[:count]
        return found

    def tensors(self) -> dict[str, Tensor]:
        """What a model file holds of it."""
        return {name: getattr(self, name) for name in TENSORS}


#: The fields of a sample.
TENSORS = ("vectors", "mean", "targets", "distances", "sheet", "pictured")
#: The side of a small picture before it is put onto the sheet; the sides there, of which the first is taken that fits
#: into the bytes, as the last one always does.
PICTURE, _SIDES, _SHEET_BYTES = 64, (64, 48, 40, 32, 24, 16, 12, 8), 350_000
#: The most pixels along a side of the sheet.
MAX_SHEET = 8192


def _across(count: int) -> int:
    return max(1, int(np.ceil(np.sqrt(count))))


def _directions(reduced: Tensor, mean: Tensor) -> Tensor:
    return F.normalize(reduced - mean, dim=1)


def reducer_for(model: MGCAP) -> Projection | Sketch:
    """What makes a few hundred numbers of a model's descriptors: the projection that ships, or a sketch."""
    projection = projection_for(model)
    return Sketch(model.head.in_features) if projection.axes is None else projection


def reduced_by(model: MGCAP) -> str:
    """What a sample's vectors were made by: those of another kind cannot be compared."""
    return projection_for(model).fingerprint or f"sketch-{LENGTH}"


def reduce_rows(model: MGCAP, rows: Tensor) -> Tensor:
    """Descriptors ``[n, d]``, or vectors of an index, as a sample keeps them."""
    projection = projection_for(model)
    if projection.axes is not None and rows.shape[1] == len(projection.axes) != model.head.in_features:
        return rows[:, :LENGTH].float()
    reducer = reducer_for(model)
    return torch.cat([reducer(part.float())[:, :LENGTH] for part in torch.split(rows, 1024)])


def take_sample(
    reduced: Tensor, targets: Array, folds: Array, usual: Array, images: int, seed: int = 0
) -> tuple[TrainingSample, Array]:
    """A sample of training descriptors, and the numbers of those that are in it, images first.

    Args:
        reduced: ``[n, p]``, of :func:`reduce_rows`.
        targets: Their classes.
        folds: The fold of each; distances are those of one fold from all others.
        usual: Which of them say which distances are usual.
        images: How many of them, the first, are whole images.
        seed: Draws the sample where there are too many.
    """
    rng = np.random.default_rng((seed, 9))
    order = np.concatenate([rng.permutation(images), images + rng.permutation(len(reduced) - images)])
    chosen = np.sort(order[: BYTES // reduced.shape[1]])
    kept = reduced[torch.from_numpy(chosen)]
    mean = kept.mean(0)
    directions = _directions(kept, mean)
    held_out = []
    for fold in np.unique(folds[usual]):
        inside = torch.from_numpy(np.flatnonzero(usual & (folds == fold)))
        others = directions[torch.from_numpy(folds[chosen] != fold)]
        if len(others):
            held_out.append(1 - (_directions(reduced[inside], mean) @ others.T).amax(1))
    every = torch.cat(held_out) if held_out else torch.tensor([2.0])
    quantiles = torch.from_numpy(np.quantile(every.double().numpy(), np.linspace(0, 1, QUANTILES))).float()
    sample = TrainingSample(
        (127 * directions).round().to(torch.int8),
        mean.float(),
        torch.from_numpy(targets[chosen]).to(torch.int32),
        quantiles,
        torch.zeros(0, dtype=torch.uint8),
        torch.zeros((), dtype=torch.int32),
    )
    return sample, chosen


def with_pictures(sample: TrainingSample, images: list[Array]) -> TrainingSample:
    """A sample with small pictures ``[h, w, 3]`` in bytes, of the first of its descriptors."""
    from PIL import Image

    across = _across(len(images))
    down = -(-len(images) // across)
    buffer = io.BytesIO()
    for side in _SIDES:
        sheet = Image.new("RGB", (across * side, down * side))
        for number, pixels in enumerate(images):
            row, column = divmod(number, across)
            small = Image.fromarray(pixels).resize((side, side), Image.Resampling.BOX)
            sheet.paste(small, (column * side, row * side))
        buffer = io.BytesIO()
        sheet.save(buffer, "WEBP", quality=50, method=4)
        if buffer.tell() <= _SHEET_BYTES:
            break
    content = torch.frombuffer(bytearray(buffer.getvalue()), dtype=torch.uint8)
    return replace(sample, sheet=content, pictured=torch.tensor(len(images), dtype=torch.int32))
