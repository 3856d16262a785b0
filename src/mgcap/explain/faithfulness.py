"""Do heat maps show what the model looks at? Measured, not assumed (Petsiuk et al. 2018; Adebayo et al. 2018).

Deletion takes pixels away, the hottest first, and watches the probability of the class fall; insertion brings them back
to a blurred image and watches it rise. The area under the curve says how soon. Maps are compared with random ones and
with a blob in the middle of the image, which is where photographers put things.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from mgcap.explain.explanation import explain_image
from mgcap.explain.heat import METHODS
from mgcap.inference.descriptors import stream_answers
from mgcap.inference.preparation import build_model, prepare_engine
from mgcap.runtime import Progress, Runtime, silent
from mgcap.typing import Array

if TYPE_CHECKING:
    from mgcap.classifier import SceneClassifier
    from mgcap.data.stream import Item

Row = dict[str, Any]

#: Steps from nothing to everything.
STEPS = 10
#: Pixels are taken in blocks of this side, so that a random map is not mere noise to the network.
BLOCK = 16
#: How strongly the image is blurred that insertion begins with, as a share of its side.
BLUR = 0.1
RANDOM, CENTRE = "random", "centre"


def blurred(image: Tensor) -> Tensor:
    """An image ``[3, H, W]`` without its details."""
    radius = max(1, round(BLUR * min(image.shape[-2:])))
    axis = torch.arange(-2 * radius, 2 * radius + 1, dtype=image.dtype)
    kernel = torch.exp(-0.5 * (axis / radius) ** 2)
    kernel = kernel / kernel.sum()
    out = image[:, None]
    for shape in ((1, 1, -1, 1), (1, 1, 1, -1)):
        weight = kernel.view(shape)
        pad = [0, 0, 2 * radius, 2 * radius] if shape[2] == -1 else [2 * radius, 2 * radius, 0, 0]
        out = F.conv2d(F.pad(out, pad, mode="replicate"), weight)
    return out[:, 0]


def blocks(heat: Array) -> Array:
    """Mean heat of blocks of pixels, in the shape of the image."""
    found = torch.from_numpy(np.ascontiguousarray(heat))[None, None].float()
    height, width = heat.shape
    rows, columns = max(1, round(height / BLOCK)), max(1, round(width / BLOCK))
    small = F.adaptive_avg_pool2d(found, (rows, columns))
    array: Array = F.interpolate(small, (height, width), mode="nearest")[0, 0].numpy()
    return array


def altered(image: Tensor, heat: Array, other: Tensor) -> list[Tensor]:
    """The image with more and more of its hottest pixels replaced by ``other``: ``STEPS + 1`` versions."""
    order = np.argsort(-blocks(heat).ravel(), kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    rank = torch.from_numpy(place.reshape(heat.shape)) / len(order)
    return [torch.where(rank < share, other, image) for share in np.linspace(0, 1, STEPS + 1)]


def area(values: Array) -> float:
    """Under a curve from 0 to 1, by trapezia."""
    return float((values[1:] + values[:-1]).mean() / 2)


def centre_prior(height: int, width: int) -> Array:
    """A blob in the middle."""
    y = np.linspace(-1, 1, height)[:, None]
    x = np.linspace(-1, 1, width)[None]
    blob: Array = np.exp(-2 * (x**2 + y**2))
    return blob


def measure(
    classifier: SceneClassifier, items: Sequence[Item], seed: int = 0, progress: Progress = silent
) -> tuple[list[Row], dict[str, dict[str, Array]]]:
    """Deletion and insertion on images, for each kind of map.

    Args:
        classifier: Fitted.
        items: Test images that can be read.
        seed: Of the random maps.
        progress: Where to report.

    Returns:
        For each image and map the two areas, and for each map the mean curves by name.
    """
    rng = np.random.default_rng(seed)
    rows: list[Row] = []
    sums: dict[str, dict[str, Array]] = {}
    with progress("Deleting and inserting", len(items)) as step:
        for number, item in enumerate(items):
            found = explain_image(classifier, item)
            image = torch.from_numpy(found.image).permute(2, 0, 1)
            target = found.classes.index(found.target)
            height, width = found.image.shape[:2]
            maps = {method: found.heat[method] for method in METHODS}
            maps[RANDOM] = rng.random((height, width))
            maps[CENTRE] = centre_prior(height, width)
            grey = image.mean((-2, -1), keepdim=True).expand_as(image)
            soft = blurred(image)
            for name, heat in maps.items():
                versions = [*altered(image, heat, grey), *altered(soft, heat, image)]
                curve = probabilities(classifier, versions)[:, target]
                curves = {"deletion": curve[: STEPS + 1], "insertion": curve[STEPS + 1 :]}
                rows.append({"image": number, "map": name} | {kind: area(own) for kind, own in curves.items()})
                kept = sums.setdefault(name, {kind: np.zeros(STEPS + 1) for kind in curves})
                for kind, own in curves.items():
                    kept[kind] += own / len(items)
            step(1)
    return rows, sums


def probabilities(classifier: SceneClassifier, images: Sequence[Tensor]) -> Array:
    """``[n, K]`` of images that can be read, without a word."""
    answers = stream_answers(classifier.model_, classifier.engine_, images, lambda i, e: None)
    array: Array = torch.cat([found.probabilities for _, found in answers]).cpu().numpy()
    return array


def rank_correlation(first: Array, second: Array) -> float:
    """Spearman's correlation of two maps; 0 where one of them is the same everywhere."""
    from scipy.stats import spearmanr

    if np.ptp(first) == 0 or np.ptp(second) == 0:
        return 0.0
    return float(spearmanr(first.ravel(), second.ravel()).statistic)


def randomised_weights(classifier: SceneClassifier, items: Sequence[Item], seed: int = 0) -> dict[str, float]:
    """How much maps of the model with random weights are like its own: the mean rank correlation of each method.

    A map that stays the same shows the image and not the model.
    """
    other = copy.copy(classifier)
    runtime = Runtime(seed=seed, device=str(classifier.model_.mean.device))
    strange_model, _ = build_model(classifier.model_.config, "random", runtime)
    strange_model.reduction = classifier.model_.reduction
    other.model_, other.engine_ = strange_model, prepare_engine(strange_model, Runtime("torch"), None)
    found: dict[str, list[float]] = {method: [] for method in METHODS}
    for item in items:
        own = explain_image(classifier, item)
        strange = explain_image(other, item, target=own.target)
        for method in METHODS:
            found[method].append(rank_correlation(blocks(own.heat[method]), blocks(strange.heat[method])))
    return {method: float(np.mean(values)) for method, values in found.items()}
