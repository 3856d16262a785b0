"""What methods with a linear softmax share: rows of images, solved to convergence."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Self

import numpy as np
from torch import Tensor

from mgcap.data.stream import Item
from mgcap.training.softmax import LinearHead, solve_head
from mgcap.typing import Array


class ExactSoftmax(ABC):
    """Logistic regression on rows of images, its strength chosen by cross-validation."""

    head: LinearHead

    @abstractmethod
    def rows(self, images: Sequence[Item]) -> Tensor:
        """Descriptors ``[n, d]``."""

    def prepare(self, images: Sequence[Item], classes: int) -> None:  # noqa: B027 (most need nothing)
        """Learn whatever the rows need, before the head."""

    def fit(self, images: Sequence[Item], labels: Sequence[str]) -> Self:
        """Learn from images and their labels."""
        self.classes, targets = np.unique(np.asarray(labels), return_inverse=True)
        self.prepare(images, len(self.classes))
        self.head = solve_head(self.rows(images), targets.tolist(), len(self.classes))
        return self

    def predict(self, images: Sequence[Item]) -> Array:
        """The label of each image."""
        answers = (self.rows(images) @ self.head.weight.T + self.head.bias).argmax(1)
        labels: Array = self.classes[answers.numpy()]
        return labels

    def head_numbers(self) -> int:
        """Numbers of the softmax."""
        return int(self.head.weight.numel() + self.head.bias.numel())
