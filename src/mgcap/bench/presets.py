"""What a choice of views and network costs and gives: points from the fastest to the most accurate.

Accuracies were measured once, on test images of UC Merced (``benchmarks/presets.py``), and come with the package; the
time of an image is that of the machine, so it can be measured anew.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import resources
from typing import Any

from pydantic import BaseModel, ConfigDict

from mgcap.bench.profile import best_engine, median_seconds
from mgcap.bench.speed import drawn_images, random_model, ready_engine
from mgcap.config import MGCAPConfig
from mgcap.inference.descriptors import stream_answers

#: By what is typed after ``mgcap train DATA``: values of the configuration.
POINTS: dict[str, dict[str, Any]] = {
    "--preset tiny --rotations 1": {"preset": "tiny", "rotations": 1},
    "--preset tiny": {"preset": "tiny"},
    "--preset compact --granularities 1.0 --rotations 1": {"granularities": 1.0, "rotations": 1},
    "--preset compact --granularities 1.0": {"granularities": 1.0},
    "--preset compact": {},
}
#: Images that are classified to see how long it takes, and how often.
IMAGES, REPEATS = 16, 15


class Measured(BaseModel):
    """A point as it was measured on UC Merced.

    Attributes:
        options: What is typed.
        milliseconds: Of an image, with all of its views.
        accuracy: Mean and standard deviation over ten splits in percent, by the share of training images.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    options: str
    milliseconds: float
    accuracy: dict[str, tuple[float, float]]


class Curve(BaseModel):
    """All points, and where and how they were measured."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    machine: str
    command: str
    points: tuple[Measured, ...]


def shipped_curve() -> Curve:
    """What was measured for this release."""
    file = resources.files("mgcap.persistence.shipped") / "presets.json"
    return Curve.model_validate(json.loads(file.read_text(encoding="utf-8")))


def configuration_of(options: str) -> MGCAPConfig:
    """The configuration of a point."""
    return MGCAPConfig(**POINTS[options])


def milliseconds(config: MGCAPConfig) -> float:
    """Of an image, on this machine, by the fastest engine that works here; a median of some runs."""
    model, images = random_model(config), drawn_images(IMAGES)
    engine = ready_engine(model, best_engine(), images)
    seconds = median_seconds(lambda: list(stream_answers(model, engine, images, lambda i, e: None)), REPEATS)
    return 1000 * seconds / IMAGES


def measured_here() -> Iterator[tuple[str, float]]:
    """Options and milliseconds of each point on this machine."""
    for options in POINTS:
        yield options, milliseconds(configuration_of(options))
