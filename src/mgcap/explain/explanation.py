"""The explanation of one image: canonical appearances, votes and heat maps, as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from mgcap.data.stream import Item, to_tensor
from mgcap.errors import DataError, unknown_class
from mgcap.explain.geometry import Box, crop_box, to_image_frame
from mgcap.explain.heat import METHODS, feature_gradients, heat_map
from mgcap.head import top_classes
from mgcap.inference.engines import Engine
from mgcap.inference.sample import reduce_rows
from mgcap.model import MGCAP, SAMPLED_VIEWS
from mgcap.pooling import count_votes
from mgcap.typing import Array

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from mgcap.classifier import SceneClassifier


#: Longer side in pixels of the frame that heat maps are made in.
LARGEST = 2048


@dataclass(frozen=True)
class Explanation:
    """Why an image was called what it was called.

    S granularities, R rotations, an image of H x W pixels, views of h x h pixels.

    Attributes:
        image: ``[H, W, 3]`` in [0, 1].
        classes: Names of all classes.
        probabilities: ``[K]``.
        distance: From what the model was trained on; None if it does not know.
        target: The class that the heat maps show evidence for.
        contrast: The class that they show evidence against, if any.
        granularities: Crop ratios.
        rotations: The angles of all rotations in degrees.
        boxes: What each granularity looks at.
        angles: ``[S]``: rotated clockwise by it, the image is in its canonical pose.
        votes: ``[S, R]``: the share of the matrix's entries that each rotation won.
        views: ``[S, h, h, 3]``: the canonical appearances.
        view_heat: By method ``[S, h, h]``, on the canonical appearances; of each method the largest value is one.
        granularity_heat: By method ``[S, H, W]``, what each granularity adds, in the image's own frame.
        heat: By method ``[H, W]``: all granularities together, the largest value one.
    """

    image: Array
    classes: tuple[str, ...]
    probabilities: Array
    distance: float | None
    target: str
    contrast: str | None
    granularities: tuple[float, ...]
    rotations: tuple[float, ...]
    boxes: tuple[Box, ...]
    angles: Array
    votes: Array
    views: Array
    view_heat: dict[str, Array]
    granularity_heat: dict[str, Array]
    heat: dict[str, Array]

    def top(self, count: int = 5) -> list[tuple[str, float]]:
        """The most probable classes."""
        return top_classes(self.classes, self.probabilities, count)

    def figure(self) -> Figure:
        """All of it on one page, see :mod:`mgcap.explain.figures`."""
        from mgcap.explain.figures import explanation_figure

        return explanation_figure(self)


@torch.no_grad()
def all_features(model: MGCAP, engine: Engine | None, image: Tensor) -> list[Tensor]:
    """Local features of every view of one image ``[1, 3, H, W]``: for each granularity ``[R, C, N]``."""
    found = []
    angles = model.config.angles
    for g in range(len(model.config.granularities)):
        parts = [
            model.features_at(image, g, angles[start : start + SAMPLED_VIEWS], engine)[0]
            for start in range(0, len(angles), SAMPLED_VIEWS)
        ]
        found.append(torch.cat(parts).float())
    return found


def _normalised(heat: Tensor) -> Array:
    heat = heat / heat.max().clamp_min(1e-30)
    array: Array = heat.cpu().numpy()
    return array


def class_index(classes: Sequence[str], name: str) -> int:
    """The number of a class; an error names the classes if it is none of them."""
    if name not in classes:
        raise unknown_class(name, classes)
    return list(classes).index(name)


def explain_image(
    classifier: SceneClassifier, item: Item, target: str | None = None, contrast: str | None = None
) -> Explanation:
    """Explain one image.

    Args:
        classifier: Fitted.
        item: A file or an array.
        target: The class to show evidence for; the most probable one by default.
        contrast: A class to show evidence against: the heat maps then explain the difference of the two logits.
    """
    model: MGCAP = classifier.model_
    config = model.config
    classes = tuple(str(name) for name in classifier.classes_)
    image = _not_too_large(to_tensor(item)[None]).to(model.mean.device)
    height, width = image.shape[-2:]
    features = all_features(model, classifier.engine_, image)
    chosen = None if target is None else class_index(classes, target)
    against = None if contrast is None else class_index(classes, contrast)
    if chosen is not None and chosen == against:
        raise DataError(f"'{target}' cannot be contrasted with itself")

    def pick(logits: Tensor) -> int:
        """The class to show evidence for."""
        if chosen is not None:
            return chosen
        others = logits.detach().clone()
        if against is not None:
            others[against] = -torch.inf
        return int(others.argmax())

    def score(logits: Tensor) -> Tensor:
        own = logits[pick(logits)]
        return own if against is None else own - logits[against]

    gradients, said, winners = feature_gradients(model, features, score)
    logits = said.logits[0]
    votes = count_votes(winners, config.rotations)
    best = votes.argmax(-1)
    angles = [config.angles[int(r)] for r in best]
    views = torch.cat([model.views_at(image, g, [angle])[0] for g, angle in enumerate(angles)])
    views = (views * model.std + model.mean).clamp(0, 1)
    heat = _heat_maps(model, features, gradients, best, (height, width))
    return Explanation(
        image=image[0].permute(1, 2, 0).cpu().numpy(),
        classes=classes,
        probabilities=logits.double().softmax(0).cpu().numpy(),
        distance=_distance(classifier, said.descriptors),
        target=classes[pick(logits)],
        contrast=contrast,
        granularities=config.granularities,
        rotations=config.angles,
        boxes=tuple(crop_box(height, width, config.field_of_view * g) for g in config.granularities),
        angles=np.array(angles),
        votes=(votes / votes.sum(-1, keepdim=True)).cpu().numpy(),
        views=views.permute(0, 2, 3, 1).cpu().numpy(),
        view_heat={method: found[0] for method, found in heat.items()},
        granularity_heat={method: found[1] for method, found in heat.items()},
        heat={method: found[2] for method, found in heat.items()},
    )


def _distance(classifier: SceneClassifier, descriptors: Tensor) -> float | None:
    """How far an image is from what the model was trained on."""
    if classifier.sample_ is None:
        return None
    return float(classifier.sample_.distance(reduce_rows(classifier.model_, descriptors.float().cpu())))


def _heat_maps(
    model: MGCAP, features: Sequence[Tensor], gradients: Sequence[Tensor], best: Tensor, shape: tuple[int, int]
) -> dict[str, tuple[Array, Array, Array]]:
    """By method: on the canonical views, what each granularity adds in the image's frame, and all together."""
    config = model.config
    found = {}
    for method in METHODS:
        on_view, on_image = [], []
        for g, granularity in enumerate(config.granularities):
            maps = heat_map(method, features[g], gradients[g])  # [R, h', w']
            on_view.append(_enlarged(maps[int(best[g])], config.size))
            both = torch.stack((maps, torch.ones_like(maps)), dim=1)  # the second tells how many views look at a pixel
            back = [
                to_image_frame(pair, angle, config.field_of_view * granularity, config.frame, *shape)
                for pair, angle in zip(both, config.angles, strict=True)
            ]
            on_image.append(torch.stack(back).sum(0))
        pixels = torch.stack(on_image)  # [S, 2, H, W]
        total = pixels.sum(0)
        found[method] = (
            _normalised(torch.stack(on_view)),
            _normalised(pixels[:, 0] / pixels[:, 1].clamp_min(1)),
            _normalised(total[0] / total[1].clamp_min(1)),
        )
    return found


def _not_too_large(image: Tensor) -> Tensor:
    """Shrink an image whose heat maps, one per rotation, would fill the memory; views are far smaller anyway."""
    shrink = max(image.shape[-2:]) / LARGEST
    if shrink <= 1:
        return image
    shape = [max(1, round(side / shrink)) for side in image.shape[-2:]]
    return torch.nn.functional.interpolate(image, shape, mode="area")


def _enlarged(heat: Tensor, size: int) -> Tensor:
    return torch.nn.functional.interpolate(heat[None, None], (size, size), mode="bilinear", align_corners=False)[0, 0]
