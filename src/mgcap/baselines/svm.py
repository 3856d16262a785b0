"""Support vector machines on descriptors: the classifier of most methods that are compared."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from mgcap.baselines.method import Descriptor, Tools
from mgcap.data.stream import Item
from mgcap.typing import Array

#: Cost of the linear machines (liblinear's default) and of those with a Gaussian kernel.
LINEAR_COST, KERNEL_COST = 1.0, 10.0


def linear_svm(seed: int) -> Any:
    """One linear machine for each class against the others."""
    from sklearn.svm import LinearSVC

    return LinearSVC(C=LINEAR_COST, random_state=seed, max_iter=5000)


def pairwise_svm(seed: int) -> Any:
    """One linear machine for each pair of classes."""
    from sklearn.svm import SVC

    return SVC(C=LINEAR_COST, kernel=inner_products, random_state=seed)


def inner_products(first: Array, second: Array) -> Array:
    """The linear kernel; libsvm's own takes minutes where vectors are long."""
    products: Array = first @ second.T
    return products


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
    kept = sum(len(p.support_) * p.shape_fit_[1] for _, p in parts if callable(getattr(p, "kernel", None)))
    return int(sum(np.size(array) for array in arrays if array is not None) + kept)


def _is_derived(part: Any, name: str) -> bool:
    """The coefficients of a machine with a kernel do not exist; asking for them raises."""
    return name == "coef_" and getattr(part, "kernel", "linear") != "linear"


class SvmMethod(ABC):
    """Vectors of images and a machine on them.

    Args:
        tools: What methods share.
        machine: Makes the classifier for a seed.
    """

    def __init__(self, tools: Tools, machine: Callable[[int], Any] = linear_svm) -> None:
        self.tools = tools
        self.machine = machine(tools.seed)

    def learn(self, images: Sequence[Item], labels: Sequence[str]) -> None:
        """Learn what the vectors need; nothing by default."""
        return

    @abstractmethod
    def rows(self, images: Sequence[Item]) -> Tensor:
        """Vectors ``[n, d]``."""

    @abstractmethod
    def numbers(self) -> int:
        """How many numbers stand behind the vectors."""

    def fit(self, images: Sequence[Item], labels: Sequence[str]) -> Self:
        """Learn from images and their labels."""
        self.learn(images, labels)
        self.machine.fit(self.rows(images).numpy(), np.asarray(labels))
        return self

    def predict(self, images: Sequence[Item]) -> Array:
        """The label of each image."""
        labels: Array = self.machine.predict(self.rows(images).numpy())
        return labels

    def parameters(self) -> int:
        """How many numbers the fitted method consists of."""
        return self.numbers() + count_numbers(self.machine)


class DescriptorSvm(SvmMethod):
    """A fixed descriptor of each image, scaled to unit length, and a machine.

    Args:
        tools: What methods share.
        descriptor: Of an image.
        machine: Makes the classifier for a seed.
        frozen: Numbers that the descriptor itself consists of.
    """

    def __init__(
        self, tools: Tools, descriptor: Descriptor, machine: Callable[[int], Any] = linear_svm, frozen: int = 0
    ) -> None:
        super().__init__(tools, machine)
        self.descriptor, self.frozen = descriptor, frozen

    def rows(self, images: Sequence[Item]) -> Tensor:
        """The descriptors."""
        return F.normalize(self.tools.describe(self.descriptor, images), dim=1)

    def numbers(self) -> int:
        """Those of the network behind the descriptor."""
        return self.frozen
