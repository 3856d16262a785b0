"""What a model was taught by: vectors and classes, no pixels, so that classes can be added to it without the images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from mgcap.typing import Array

#: Between images of which no place is known, so that no two are neighbours.
FAR = 1e7
#: Where images without a place lie, up and down.
_NOWHERE = -1e12
#: Vectors of one cell differ by no more of their length, whatever machine they were made on.
_SAME = 0.05


@dataclass(frozen=True, eq=False)
class Examples:
    """Cells or images with their classes.

    Attributes:
        vectors: ``[n, p]`` in half precision, as indexes keep them.
        targets: ``[n]`` int32: the number of the class.
        places: ``[n, 2]`` float64: where each lies, in metres, so that neighbours can be held out together.
    """

    vectors: Tensor
    targets: Tensor
    places: Tensor

    def __len__(self) -> int:
        return len(self.targets)

    @property
    def bytes(self) -> int:
        """What they take in a model file."""
        return sum(tensor.numel() * tensor.element_size() for tensor in self.tensors().values())

    def tensors(self) -> dict[str, Tensor]:
        """What a model file holds of them."""
        return {name: getattr(self, name).contiguous() for name in EXAMPLE_TENSORS}

    def ordered(self) -> Examples:
        """In an order that does not depend on how they were gathered, and none twice."""
        keys = [*self.vectors.view(torch.int16)[:, :2].T.numpy(), self.targets.numpy(), *self.places.T.numpy()]
        order = np.lexsort(keys)
        rows = np.ascontiguousarray(self.vectors.numpy()[order])
        same = (rows[1:] == rows[:-1]).all(1)
        for values in (self.targets.numpy()[order], *(axis[order] for axis in self.places.T.numpy())):
            same &= values[1:] == values[:-1]
        kept = torch.from_numpy(order[np.concatenate([[True], ~same])]) if len(order) else torch.from_numpy(order)
        return self.part(kept)

    def part(self, members: Tensor) -> Examples:
        """Some of them."""
        return Examples(self.vectors[members], self.targets[members], self.places[members])

    def without(self, members: Array) -> Examples:
        """All but some."""
        left = torch.ones(len(self), dtype=torch.bool)
        left[torch.from_numpy(members)] = False
        return self.part(left.nonzero()[:, 0])

    def renumbered(self, numbers: Sequence[int]) -> Examples:
        """With other numbers of classes; those of classes that become -1 are left out."""
        targets = torch.as_tensor(list(numbers), dtype=torch.int32)[self.targets.long()]
        return Examples(self.vectors, targets, self.places).part((targets >= 0).nonzero()[:, 0])


#: The fields of examples.
EXAMPLE_TENSORS = ("vectors", "targets", "places")


def joined(parts: Sequence[Examples]) -> Examples:
    """The examples of several sets together."""
    return Examples(*(torch.cat([getattr(part, name) for part in parts]) for name in EXAMPLE_TENSORS))


def moved(examples: Examples, rasters: int) -> Examples:
    """Those of a raster without a place on the Earth, moved by N such rasters from the first one."""
    return Examples(examples.vectors, examples.targets, examples.places + torch.tensor([FAR * rasters, 0.0]))


def places_used(examples: Examples) -> int:
    """How many rasters without a place on the Earth lie where examples lie."""
    own = examples.places[examples.places[:, 1] > _NOWHERE / 2, 0]
    return 1 + int(own.max() // FAR) if len(own) else 0


def same_cells(old: Examples, new: Examples) -> tuple[Array, Array, bool]:
    """Pairs of examples that are of the same cell, and whether other cells lie at a place of both."""
    known: dict[tuple[float, ...], list[int]] = {}
    for number, place in enumerate(map(tuple, old.places.tolist())):
        known.setdefault(place, []).append(number)
    pairs = [(o, n) for n, place in enumerate(map(tuple, new.places.tolist())) for o in known.get(place, ())]
    ours, theirs = np.array(pairs, np.int64).reshape(-1, 2).T
    one, other = old.vectors[torch.from_numpy(ours)].float(), new.vectors[torch.from_numpy(theirs)].float()
    same = ((one - other).norm(dim=1) <= _SAME * one.norm(dim=1)).numpy()
    return ours[same], theirs[same], bool((~same).any())


def settled(old: Examples, new: Examples) -> tuple[Examples, int]:
    """Both together but for cells to which they give different classes, and how many these are."""
    ours, theirs, _ = same_cells(old, new)
    differ = (old.targets.numpy()[ours] != new.targets.numpy()[theirs]) if len(ours) else np.zeros(0, bool)
    kept = (old.without(ours[differ]), new.without(theirs[differ]))
    return joined(kept).ordered(), len(np.unique(theirs[differ]))


def apart(count: int) -> Array:
    """Places of images that have none: each lies alone."""
    return np.stack((FAR * np.arange(1, count + 1, dtype=np.float64), np.full(count, _NOWHERE)), -1)
