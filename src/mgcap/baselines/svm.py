"""Support vector machines on descriptors: the classifier of most methods that are compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from mgcap.baselines.method import Array, Descriptor, Tools
from mgcap.data.stream import Item

#: Cost of the linear machines (liblinear's default) and of those with a Gaussian kernel.
LINEAR_COST, KERNEL_COST = 1.0, 10.0


def linear_svm(seed: int) -> Any:
    """One linear machine for each class against the others."""
    from sklearn.svm import LinearSVC

    return LinearSVC(C=LINEAR_COST, random_state=seed, max_iter=5000)


def kernel_svm(seed: int) -> Any:
    """Machines with a Gaussian kernel on standardised descriptors."""
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVC

    return make_pipeline(StandardScaler(), SVC(C=KERNEL_COST, random_state=seed))


def count_numbers(machine: Any) -> int:
    """How many numbers a fitted machine of scikit-learn consists of."""
    parts = machine.steps if hasattr(machine, "steps") else [("", machine)]
    names = ("coef_", "intercept_", "support_vectors_", "dual_coef_", "mean_", "scale_", "components_")
    arrays = (getattr(part, name, None) for _, part in parts for name in names if not _is_derived(part, name))
    return int(sum(np.size(array) for array in arrays if array is not None))


def _is_derived(part: Any, name: str) -> bool:
    """The coefficients of a machine with a kernel do not exist; asking for them raises."""
    return name == "coef_" and getattr(part, "kernel", "linear") != "linear"


class DescriptorSvm:
    """A fixed descriptor of each image, scaled to unit length, and a machine.

    Args:
        tools: What methods share.
        descriptor: Of an image.
        machine: Makes the classifier for a seed.
        scale: Applied to the descriptors first; unit length by default.
        frozen: Numbers that the descriptor itself consists of.
    """

    def __init__(
        self,
        tools: Tools,
        descriptor: Descriptor,
        machine: Callable[[int], Any] = linear_svm,
        scale: Callable[[Tensor], Tensor] | None = None,
        frozen: int = 0,
    ) -> None:
        self.tools, self.descriptor, self.frozen = tools, descriptor, frozen
        self.machine = machine(tools.seed)
        self.scale = scale or unit_length

    def fit(self, images: Sequence[Item], labels: Sequence[str]) -> DescriptorSvm:
        """Learn from images and their labels."""
        self.machine.fit(self._rows(images), np.asarray(labels))
        return self

    def predict(self, images: Sequence[Item]) -> Array:
        """The label of each image."""
        labels: Array = self.machine.predict(self._rows(images))
        return labels

    def parameters(self) -> int:
        """Numbers of the machine and of the network behind the descriptor."""
        return self.frozen + count_numbers(self.machine)

    def _rows(self, images: Sequence[Item]) -> Array:
        rows: Array = self.scale(self.tools.describe(self.descriptor, images)).numpy()
        return rows


def unit_length(rows: Tensor) -> Tensor:
    """Rows of Euclidean length one."""
    return F.normalize(rows, dim=1)
