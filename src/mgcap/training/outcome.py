"""The head of frozen features, and what is found on the way: held-out probabilities, and a sample of what was seen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from mgcap.data.stream import Item, to_tensor
from mgcap.errors import ImageError
from mgcap.inference.engines import Engine
from mgcap.inference.examples import Examples, apart
from mgcap.inference.projection import Projection, projection_for
from mgcap.inference.sample import PICTURE, TrainingSample, reduce_rows, take_sample, with_pictures
from mgcap.inference.universal import UniversalDescriptor
from mgcap.model import MGCAP
from mgcap.training.composed import Composed, composed_windows, draw_folds
from mgcap.training.setup import Setup, TrainingSet
from mgcap.training.sgd_head import train_head
from mgcap.training.softmax import HeadSolver
from mgcap.training.temperature import fit_temperature
from mgcap.typing import Array

if TYPE_CHECKING:
    from mgcap.training.finetune import History

#: A window shows a class, rather than several, where it has at least this share.
PURE = 0.8
#: What all windows of composed scenes count, for all images.
WINDOWS_SHARE = 0.3


@dataclass
class Outcome:
    """What training found besides the model itself."""

    kept: list[int]  #: images that could be read
    skipped: list[tuple[int, ImageError]]
    engine: Engine | None = None
    universal: UniversalDescriptor | None = None  #: whose axes were taken
    regularisation: float | None = None
    cv_accuracy: float | None = None
    held_out: Tensor | None = None  #: probabilities of images that were held out
    history: History | None = None
    temperature: float | None = None  #: by which the head was cooled
    examples: Examples | None = None  #: what it was taught by, where a projection makes them small
    sample: TrainingSample | None = None  #: of what it has seen; none of a network that was fine-tuned


def solve_head(setup: Setup, model: MGCAP, rows: Tensor, data: TrainingSet, outcome: Outcome) -> None:
    """Give a model its head, and say in the outcome what was found.

    Args:
        setup: How to train; if fine-tuning follows, its recipe says how the head is trained.
        model: Gets the head.
        rows: Descriptors of the images.
        data: These images.
        outcome: Has the engine.
    """
    recipe, seed, progress = setup.finetune, setup.runtime.seed, setup.runtime.progress
    if recipe is not None and recipe.head == "sgd":
        with progress("Training the head", recipe.head_epochs) as step:
            weights = recipe.weights_of(data.classes, data.targets)
            weight, bias = train_head(rows, data.targets, weights, recipe, model.side, seed, step)
    else:
        weight, bias = _solved(setup, model, rows, data, outcome)
    with torch.no_grad():
        model.head.weight.copy_(weight)
        model.head.bias.copy_(bias)


def _solved(setup: Setup, model: MGCAP, rows: Tensor, data: TrainingSet, outcome: Outcome) -> tuple[Tensor, Tensor]:
    folds = draw_folds(np.asarray(data.targets), setup.runtime.seed)
    made, projection = None, Projection()
    if setup.composed:
        assert outcome.engine is not None
        made = composed_windows(model, outcome.engine, data, folds, setup.composed, setup.runtime)
        projection = projection_for(model)  # the head learns from what an index keeps, as maps use it
    with setup.runtime.progress("Solving the head", None):
        solver = _solver(projection, rows, data, folds, made)
        solution = solver.solve(None, setup.strengths(), seed=setup.runtime.seed)
        head = solver.head(solution)
        if setup.finetune is None:
            outcome.sample = _sample(setup, model, solver, data, len(rows))
            outcome.examples = _examples(model, rows, data)
    outcome.regularisation, temperature = head.regularisation, 1.0
    if solution.cv_logits is not None:
        logits = solution.cv_logits.double()
        own = logits[: len(rows)]
        outcome.cv_accuracy = _accuracy(own, data)
        if made is not None:  # probabilities are to mean what they say of a raster's cells
            temperature = outcome.temperature = fit_temperature(logits, solver.targets.double())
        outcome.held_out = (own / temperature).softmax(1)
    return projection.unfold(head.weight / temperature, head.bias / temperature)


def _accuracy(logits: Tensor, data: TrainingSet) -> float:
    right = (logits.argmax(1) == torch.as_tensor(list(data.targets))).double().numpy()
    return float(np.average(right, weights=data.weights))


def _solver(projection: Projection, rows: Tensor, data: TrainingSet, folds: Array, made: Composed | None) -> HeadSolver:
    """Images, and windows that count a share of these together."""
    if made is None:
        return HeadSolver(rows, data.targets, len(data.classes), data.weights, folds.tolist())
    every = torch.cat([*map(projection, torch.split(rows, 1024)), made.rows])
    targets = torch.nn.functional.one_hot(torch.as_tensor(list(data.targets)), len(data.classes)).float()
    own = np.ones(len(rows)) if data.weights is None else np.asarray(data.weights)
    weights = np.concatenate([own, np.full(len(made.rows), WINDOWS_SHARE * own.sum() / len(made.rows))])
    return HeadSolver(
        every,
        torch.cat([targets, made.shares]),
        len(data.classes),
        weights.tolist(),
        np.concatenate([folds, made.folds]).tolist(),
    )


def _sample(setup: Setup, model: MGCAP, solver: HeadSolver, data: TrainingSet, images: int) -> TrainingSample:
    """A sample of images and windows; those that show one class say which distances are usual."""
    assert solver.folds is not None
    largest = solver.targets.max(1)
    sample, chosen = take_sample(
        reduce_rows(model, solver.descriptors),
        largest.indices.numpy(),
        solver.folds.numpy(),
        (largest.values >= PURE).numpy(),
        images,
        setup.runtime.seed,
    )
    return with_pictures(sample, [_picture(data.items[i]) for i in chosen if i < images])


def _examples(model: MGCAP, rows: Tensor, data: TrainingSet) -> Examples | None:
    """The images' vectors, as an index of a raster keeps its cells."""
    projection = projection_for(model)
    if projection.axes is None or data.weights is not None:
        return None
    vectors = torch.cat([projection(part.float()).half() for part in torch.split(rows, 1024)])
    targets = torch.as_tensor(list(data.targets), dtype=torch.int32)
    return Examples(vectors, targets, torch.from_numpy(apart(len(rows))))


def _picture(item: Item) -> Array:
    """A small picture of an image, in bytes."""
    pixels = torch.nn.functional.interpolate(to_tensor(item)[None], (PICTURE, PICTURE), mode="bilinear", antialias=True)
    found: Array = (255 * pixels[0].clamp(0, 1)).round().byte().permute(1, 2, 0).numpy()
    return found
