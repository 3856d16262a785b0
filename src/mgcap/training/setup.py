"""How models are trained, whatever their configuration and their images."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from mgcap.runtime import Runtime
from mgcap.training.recipe import Finetune
from mgcap.training.softmax import LAMBDAS

#: What ``descriptor`` takes.
DESCRIPTORS = ("universal", "own")


@dataclass(frozen=True)
class Setup:
    """How to train.

    Attributes:
        weights: ``imagenet``, a file, or ``random``.
        regularisation: Strength of the head's L2 term, or ``auto`` to choose it by cross-validation.
        finetune: Train the whole network after the head, so; None leaves the backbone frozen.
        runtime: Engine, device, seed, cache and progress.
        descriptor: ``universal`` (axes that ship with the package, where there are some for the backbone) or ``own``.
    """

    weights: str | Path = "imagenet"
    regularisation: float | str = "auto"
    finetune: Finetune | None = None
    runtime: Runtime = field(default_factory=Runtime)
    descriptor: str = "universal"

    def strengths(self) -> tuple[float, ...]:
        """Values of lambda to try."""
        return LAMBDAS if self.regularisation == "auto" else (float(self.regularisation),)
