"""What training needs to know: how, and on which images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from numbers import Integral
from pathlib import Path

from mgcap.data.samples import part_of
from mgcap.data.stream import Item
from mgcap.errors import MgcapError, did_you_mean
from mgcap.runtime import Runtime
from mgcap.training.recipe import Finetune
from mgcap.training.softmax import LAMBDAS

#: What ``descriptor`` takes.
DESCRIPTORS = ("universal", "own")
#: The most windows of composed scenes.
MOST_COMPOSED = 100_000


@dataclass(frozen=True)
class Setup:
    """How to train.

    Attributes:
        weights: ``imagenet``, a file, or ``random``.
        regularisation: Strength of the head's L2 term, or ``auto`` to choose it by cross-validation.
        finetune: Train the whole network after the head, so; None leaves the backbone frozen.
        runtime: Engine, device, seed, cache and progress.
        descriptor: ``universal`` (axes that ship with the package, where there are some for the backbone) or ``own``.
        composed: About how many windows of composed scenes the exact head learns from as well.
    """

    weights: str | Path = "imagenet"
    regularisation: float | str = "auto"
    finetune: Finetune | None = None
    runtime: Runtime = field(default_factory=Runtime)
    descriptor: str = "universal"
    composed: int = 0

    def strengths(self) -> tuple[float, ...]:
        """Values of lambda to try."""
        return LAMBDAS if self.regularisation == "auto" else (float(self.regularisation),)

    def check(self) -> None:
        """See that every value is possible.

        Raises:
            MgcapError: With one sentence about the first that is not.
        """
        if self.descriptor not in DESCRIPTORS:
            hint = did_you_mean(self.descriptor, DESCRIPTORS)
            raise MgcapError(f"descriptor: '{self.descriptor}' is unknown{hint}; allowed are {', '.join(DESCRIPTORS)}")
        if not isinstance(self.runtime.seed, Integral):
            raise MgcapError(f"seed: must be a whole number, not {self.runtime.seed!r}")
        if not isinstance(self.composed, Integral) or not 0 <= self.composed <= MOST_COMPOSED:
            raise MgcapError(f"composed: must be a whole number from 0 to {MOST_COMPOSED:,}, not {self.composed!r}")
        if self.composed and self.finetune is not None:
            raise MgcapError("composed: is for the exact head alone, not for finetune")
        strength = self.regularisation
        if strength != "auto" and not (isinstance(strength, int | float) and 0 < strength < float("inf")):
            raise MgcapError(f"regularisation: must be 'auto' or a positive number, not {strength!r}")


@dataclass(frozen=True)
class TrainingSet:
    """Images and their classes by number.

    Attributes:
        items: Images.
        targets: The class of each.
        classes: Names of the classes.
        weights: What each image counts in the exact head; all the same without.
    """

    items: Sequence[Item] = ()
    targets: Sequence[int] = ()
    classes: Sequence[str] = ()
    weights: Sequence[float] | None = None

    def __len__(self) -> int:
        return len(self.items)

    def part(self, members: Sequence[int]) -> TrainingSet:
        """Some of the images."""
        weights = None if self.weights is None else [self.weights[i] for i in members]
        return TrainingSet(part_of(self.items, members), [self.targets[i] for i in members], self.classes, weights)
