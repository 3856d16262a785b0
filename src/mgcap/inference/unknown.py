"""When a model had better say that it does not know."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mgcap.typing import Array

#: What is said of images and cells that a model does not know.
UNKNOWN = "unknown"
#: Share of held-out training images beyond each limit of a map, unless another is asked for.
ALPHA = 0.01


class Limits(NamedTuple):
    """Beyond which distance, and below which probability, something is unknown."""

    distance: float = np.inf
    confidence: float = 0.0

    def far(self, distances: Array | None, count: int) -> Array:
        """Which of ``count`` are unlike all that the model was trained on."""
        return np.zeros(count, bool) if distances is None else distances > self.distance

    def unknown(self, probabilities: Array, distances: Array | None = None) -> Array:
        """Which of ``[n, K]`` are unknown: far from the training images, or of too low a probability."""
        found: Array = self.far(distances, len(probabilities)) | (probabilities.max(-1) < self.confidence)
        return found


#: Nothing is unknown.
NOTHING = Limits()
