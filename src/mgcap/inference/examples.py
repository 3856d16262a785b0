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

    def renumbered(self, numbers: Sequence[int]) -> Examples:
        """With other numbers of classes; those of classes that become -1 are left out."""
        targets = torch.as_tensor(list(numbers), dtype=torch.int32)[self.targets.long()]
        return Examples(self.vectors, targets, self.places).part((targets >= 0).nonzero()[:, 0])


#: The fields of examples.
EXAMPLE_TENSORS = ("vectors", "targets", "places")


def joined(parts: Sequence[Examples]) -> Examples:
    """The examples of several sets together."""
    return Examples(*(torch.cat([getattr(part, name) for part in parts]) for name in EXAMPLE_TENSORS))


def apart(count: int) -> Array:
    """Places of images that have none: each lies alone."""
    return np.stack((FAR * np.arange(1, count + 1, dtype=np.float64), np.full(count, -1e12)), -1)
