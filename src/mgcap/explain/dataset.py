"""A whole set: how images are oriented, what classes look like in canonical pose, and which are confused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from mgcap.config import MGCAPConfig
from mgcap.data.folders import SceneFolder
from mgcap.data.stream import to_tensor
from mgcap.explain.orientation import circular_variance, dominant_orientation, rotated_orientation, sharpness
from mgcap.explain.scan import Scan
from mgcap.runtime import Progress, silent
from mgcap.typing import Array
from mgcap.views import sample_views

#: Side of the pictures that are averaged, in pixels.
SIDE = 128


@dataclass(frozen=True)
class ClassPose:
    """How the images of a class are oriented.

    Attributes:
        name: Of the class.
        images: How many.
        accuracy: Share that the model assigns to this class.
        angles: ``[R]``, how many images have each rotation as their canonical angle, at the first granularity.
        concentration: Mean share of the votes that the winning rotation has; 1 / R would be chance.
        variance_before: Circular variance of the dominant orientations as the images are, weighted by nothing.
        variance_after: And in canonical pose.
        sharpness_before: How much detail is left in the mean image, see :func:`mgcap.explain.orientation.sharpness`.
        sharpness_after: And in that of the canonical appearances.
        mean_before: ``[SIDE, SIDE, 3]``.
        mean_after: ``[SIDE, SIDE, 3]``.
    """

    name: str
    images: int
    accuracy: float
    angles: Array
    concentration: float
    variance_before: float
    variance_after: float
    sharpness_before: float
    sharpness_after: float
    mean_before: Array
    mean_after: Array


def pose(image: Tensor, angle: float, config: MGCAPConfig) -> Array:
    """What the first granularity looks at, rotated clockwise, in a disc: outside of it the rotation would show."""
    ratio = config.field_of_view * config.granularities[0]
    view = sample_views(image[None], ratio, [angle], SIDE, "filled", "mirror")[0, 0]
    axis = (torch.arange(SIDE) * 2 + 1) / SIDE - 1
    inside = (axis[:, None] ** 2 + axis[None] ** 2) <= 1
    shown: Array = torch.where(inside, view, torch.full_like(view, 0.5)).clamp(0, 1).permute(1, 2, 0).numpy()
    return shown


def class_poses(
    folder: SceneFolder, scan: Scan, config: MGCAPConfig, classes: Sequence[str], progress: Progress = silent
) -> list[ClassPose]:
    """Summarise each class of a folder.

    Args:
        folder: The images.
        scan: What :func:`mgcap.explain.scan.scan_images` found of them.
        config: The model's.
        classes: The model's, in the order of the probabilities.
        progress: Where to report.
    """
    labels = [classes[k] for k in scan.probabilities.argmax(1)]
    members: dict[str, list[int]] = {}
    for row, index in enumerate(scan.index.tolist()):
        members.setdefault(folder.labels[index], []).append(row)
    found = []
    with progress("Averaging poses", len(scan.index)) as step:
        for name in sorted(members):
            rows = members[name]
            before, after, orientations = [], [], []
            for row in rows:
                image = to_tensor(folder.paths[int(scan.index[row])])
                before.append(pose(image, 0.0, config))
                after.append(pose(image, float(scan.angles[row, 0]), config))
                orientations.append(dominant_orientation(before[-1])[0])
                step(1)
            angles = scan.angles[rows, 0]
            found.append(
                ClassPose(
                    name=name,
                    images=len(rows),
                    accuracy=float(np.mean([labels[row] == name for row in rows])),
                    angles=np.array([np.sum(np.isclose(angles, a)) for a in config.angles]),
                    concentration=float(scan.votes[rows, 0].max(-1).mean()),
                    variance_before=circular_variance(np.array(orientations)),
                    variance_after=circular_variance(rotated_orientation(np.array(orientations), angles)),
                    sharpness_before=sharpness(np.array(before)),
                    sharpness_after=sharpness(np.array(after)),
                    mean_before=np.mean(before, axis=0),
                    mean_after=np.mean(after, axis=0),
                )
            )
    return found


def confused_pairs(
    folder: SceneFolder, scan: Scan, classes: Sequence[str], count: int = 6
) -> list[tuple[str, str, list[int]]]:
    """The most frequent mistakes: truth, answer and the rows of the scan, most confident first."""
    answers = scan.probabilities.argmax(1)
    pairs = Counter(
        (folder.labels[int(index)], classes[int(answer)])
        for index, answer in zip(scan.index, answers, strict=True)
        if folder.labels[int(index)] != classes[int(answer)]
    )
    found = []
    for (truth, answer), _ in sorted(pairs.items(), key=lambda item: (-item[1], item[0]))[:count]:
        rows = [
            row
            for row, index in enumerate(scan.index.tolist())
            if folder.labels[index] == truth and classes[int(answers[row])] == answer
        ]
        found.append((truth, answer, sorted(rows, key=lambda row: -float(scan.probabilities[row].max()))))
    return found
