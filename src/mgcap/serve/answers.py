"""What the service answers, as plain values for JSON; pictures are data URIs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mgcap.errors import MgcapError
from mgcap.explain.explanation import Explanation
from mgcap.head import top_classes
from mgcap.inference.unknown import ALPHA, NOTHING, UNKNOWN, Limits
from mgcap.names import human_names
from mgcap.report import colours
from mgcap.report.page import pixels_uri
from mgcap.serve.compute import Said
from mgcap.typing import Array

if TYPE_CHECKING:
    from mgcap.classifier import SceneClassifier
    from mgcap.geo.mapping import Mapped


#: Longer side of pictures in answers, in pixels.
PICTURE_SIDE, MAP_SIDE = 512, 1400
#: How strongly heat covers the image below it, at most.
HEAT = 0.65


def prediction(classes: Sequence[Any] | Array, said: Said, limits: Limits, count: int = 5) -> dict[str, Any]:
    """Class, probability and the most probable classes; the class is ``unknown`` beyond the limits."""
    labels = [str(label) for label in classes]
    names = dict(zip(labels, human_names(labels), strict=True))
    top = [
        {"class": label, "name": names[label], "probability": round(p, 6)}
        for label, p in top_classes(labels, said.probabilities, count)
    ]
    distances = None if said.distance is None else np.array([said.distance])
    unknown = bool(limits.unknown(said.probabilities[None], distances)[0])
    return {
        **top[0],
        **({"class": UNKNOWN, "name": UNKNOWN} if unknown else {}),
        "unknown": unknown,
        "distance": None if said.distance is None else round(said.distance, 6),
        "limits": bounds(limits),
        "top": top,
    }


def bounds(limits: Limits) -> dict[str, float | None]:
    """Where the unknown begins; None for no limit."""
    return {
        "distance": round(limits.distance, 6) if np.isfinite(limits.distance) else None,
        "confidence": limits.confidence or None,
    }


def _usual(classifier: SceneClassifier) -> dict[str, float | None] | None:
    """Where the unknown begins in a map; None if the model does not know."""
    try:
        return {"share": ALPHA, **bounds(classifier.limits(ALPHA))}
    except MgcapError:
        return None


def picture(pixels: Array, side: int = PICTURE_SIDE) -> str:
    """An image ``[h, w, 3]`` in [0, 1] as a data URI."""
    return pixels_uri(pixels.clip(0, 1), side, 85)


def heated(pixels: Array, heat: Array) -> str:
    """A heat map over its image."""
    from matplotlib import colormaps

    shades = colormaps[colours.HEAT](heat)[..., :3]
    weight = HEAT * np.sqrt(heat.clip(0, 1))[..., None]
    return picture((1 - weight) * pixels + weight * shades)


def explanation(found: Explanation, limits: Limits = NOTHING) -> dict[str, Any]:
    """Prediction, heat map, and the canonical appearance of each granularity."""
    method = "gradcam"
    height, width = found.image.shape[:2]
    return {
        **prediction(found.classes, Said(found.probabilities, found.distance), limits),
        "target": found.target,
        "contrast": found.contrast,
        "width": width,
        "height": height,
        "image": picture(found.image),
        "heat": heated(found.image, found.heat[method]),
        "rotations": [round(float(angle), 2) for angle in found.rotations],
        "granularities": [
            {
                "ratio": float(ratio),
                "colour": colours.outline(g),
                "box": [round(float(v), 2) for v in (box.left, box.top, box.right, box.bottom)],
                "angle": float(found.angles[g]),
                "votes": [round(float(v), 4) for v in found.votes[g]],
                "view": picture(found.views[g]),
                "heat": heated(found.views[g], found.view_heat[method][g]),
            }
            for g, (ratio, box) in enumerate(zip(found.granularities, found.boxes, strict=True))
        ],
    }


def model_summary(name: str, classifier: SceneClassifier) -> dict[str, Any]:
    """What a model is, in short."""
    config = classifier.model_.config
    return {
        "name": name,
        "classes": [str(c) for c in classifier.classes_],
        "names": list(human_names(classifier.classes_.tolist())),
        "limits": _usual(classifier),
        "backbone": config.backbone,
        "granularities": list(config.granularities),
        "rotations": config.rotations,
        "engine": classifier.engine_.name,
        "imagery": classifier.imagery_.model_dump(),
    }


def map_answer(number: str, done: Mapped) -> dict[str, Any]:
    """A finished map: the image, its cells, its legend, and what can be downloaded."""
    from mgcap.geo.pictures import thinned

    grid, found, shift = done.plan.grid, done.found, done.shift
    image, _ = thinned(done.plan, MAP_SIDE)
    total = max(float(done.areas.sum()), 1e-9)
    return {
        "id": number,
        "width": grid.width,
        "height": grid.height,
        "cell": [grid.cell_width, grid.cell_height],
        "rows": grid.rows,
        "columns": grid.columns,
        "image": picture(image, MAP_SIDE),
        "legend": [
            {
                "class": label,
                "name": name,
                "colour": colour,
                "share": round(float(a) / total, 6),
                "area": round(float(a), 2),
            }
            for label, name, colour, a in zip(
                done.classes, done.names, colours.class_colours(done.classes), done.areas, strict=True
            )
        ],
        "cells": found.classes.ravel().tolist(),
        "probabilities": _numbers(found.probability, 4),
        "distances": None if found.distance is None else _numbers(found.distance, 4),
        "angles": _numbers(found.angles, 1),
        "limits": bounds(found.limits),
        "shift": None if shift is None else {"known": shift.known, "far": shift.far, "unsure": shift.unsure},
        "downloads": {file.name: f"/api/maps/{number}/{file.name}" for file in done.files},
    }


def _numbers(values: Array, digits: int) -> list[float | None]:
    """Of all cells; None where there is none."""
    return [None if np.isnan(value) else round(float(value), digits) for value in values.ravel()]
