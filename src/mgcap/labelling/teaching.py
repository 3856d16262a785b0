"""A classifier from examples: cells of rasters, or what another classifier was taught by.

The network stays as it is and its descriptors are known, so all that is made is a head, and a sample that says what is
unknown. The same examples give the same classifier, in whatever order and by however many steps they were gathered.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from mgcap.data.imagery import Imagery
from mgcap.errors import DataError, MgcapError
from mgcap.evaluation.assessment import Estimate
from mgcap.evaluation.spatial import block_folds, block_numbers, blocked_share
from mgcap.inference.examples import Examples
from mgcap.inference.projection import projection_for
from mgcap.inference.sample import PICTURE, TrainingSample, reduce_rows, take_sample, with_pictures
from mgcap.labelling.learner import Learned, Learner
from mgcap.labelling.pool import Pool
from mgcap.training import provenance
from mgcap.training.composed import draw_folds
from mgcap.typing import Array

if TYPE_CHECKING:
    from mgcap.classifier import SceneClassifier

#: Examples of which a model has small pictures, at most.
PICTURES = 400
#: Gives the pixels ``[h, w, 3]`` in [0, 1] of the example at a place; None if they are not there.
Look = Callable[[Array, int], Array | None]


@dataclass(frozen=True)
class Taught:
    """A classifier with how right it is.

    Attributes:
        classifier: Can be saved, mapped with and served.
        estimate: Accuracy where blocks of land are held out; None if there are too few labels, or one block.
        random: The same with examples held out at random.
        by_class: For each class how many examples it has, and which share of them is right where blocks are held out.
        block: Side of a block in the unit of the places.
        examples: That it was taught by.
        said: For each the class, by its number in the classifier, that it was given while its block was held out; -1
            if it never was.
    """

    classifier: SceneClassifier
    estimate: Estimate | None
    random: Estimate | None
    by_class: dict[str, tuple[int, Estimate | None]]
    block: float
    examples: Examples
    said: Array

    @property
    def right(self) -> Array:
        """For each example whether it was right while its block was held out: 1, 0, or -1 if it never was."""
        found: Array = np.where(self.said < 0, -1, self.said == self.examples.targets.numpy())
        return found


def teach(
    base: SceneClassifier,
    examples: Examples,
    classes: Sequence[str],
    *,
    block: float,
    imagery: Imagery | None = None,
    card: dict[str, Any] | None = None,
    keep: bool = True,
    look: Look | None = None,
) -> Taught:
    """Make a classifier from examples.

    Args:
        base: Its network and engine are used, not its head.
        examples: In vectors of the network's indexes.
        classes: Their names; those without examples are left out.
        block: Side of the squares of land that are held out together, in the unit of the places.
        imagery: What the rasters were like; that of ``base`` without.
        card: What the model file shall say of how it was taught.
        keep: Let the classifier carry the examples.
        look: Finds the pictures of examples.

    Raises:
        DataError: If there are fewer than two classes.
    """
    present = sorted(set(examples.targets.tolist()))
    names = [classes[number] for number in present]
    if len(names) < 2:
        only = f"only the class '{names[0]}'" if names else "no class"
        raise DataError(f"the labels have {only}, and a model needs two")
    numbers = np.full(len(classes), -1)
    numbers[present] = np.arange(len(present))
    order = sorted(range(len(names)), key=names.__getitem__)  # as if they had been there from the beginning
    numbers[present] = np.argsort(order)
    names = [names[number] for number in order]
    examples = examples.renumbered(numbers.tolist()).ordered()
    pool = _pool(base, examples)
    learned = Learner(pool, block).fit(dict(enumerate(examples.targets.tolist())))
    assert learned is not None
    classifier = taught_classifier(
        base, names, learned, examples, block=block, imagery=imagery, card=card or {}, look=look
    )
    classifier.examples_ = examples if keep else None
    known = ~np.isnan(learned.held_out).any(1)
    said = np.where(known, np.nan_to_num(learned.held_out).argmax(1), -1)
    by_class = _by_class(learned, np.where(known, said == learned.targets, -1), pool, names, block)
    return Taught(classifier, learned.estimate, learned.random, by_class, block, examples, said)


def taught_classifier(
    base: SceneClassifier,
    names: Sequence[str],
    learned: Learned,
    examples: Examples,
    *,
    block: float,
    card: dict[str, Any],
    imagery: Imagery | None = None,
    look: Look | None = None,
) -> SceneClassifier:
    """A classifier of what was learned, with the network of another.

    Args:
        base: Its network and engine are used, not its head.
        names: Of the classes that were learned.
        learned: The head, and what it said of labels that were held out.
        examples: The labelled cells.
        block: Side of the blocks that were held out.
        card: What the model file shall say of how it was taught.
        imagery: What the rasters were like; that of ``base`` without.
        look: Finds the pictures of examples.
    """
    made = _with_head(base, names, *projection_for(base.model_).unfold(learned.weight, learned.bias))
    made.imagery_ = base.imagery_ if imagery is None else imagery
    made.resolution = made.imagery_.resolution
    made.sample_ = _sample(base, examples, block, look) if len(examples) else None
    made.examples_ = examples
    made.provenance_ = _provenance(base, examples, card)
    made.metrics_ = _metrics(learned, block)
    return made


def _pool(base: SceneClassifier, examples: Examples) -> Pool:
    length = projection_for(base.model_).length(base.model_.head.in_features)
    if examples.vectors.shape[1] != length:
        raise MgcapError("the examples have other vectors than this model's")
    cells = np.zeros((len(examples), 3), np.int64)
    cells[:, 2] = np.arange(len(examples))
    return Pool(examples.vectors, cells, examples.places.numpy(), 1.0, torch.zeros(length))


def _with_head(base: SceneClassifier, names: Sequence[str], weight: Tensor, bias: Tensor) -> SceneClassifier:
    """A classifier with the network of another, which they share, and a head of its own."""
    model = copy.copy(base.model_)
    model._modules = dict(base.model_._modules)
    model.config = base.model_.config.replace(num_classes=len(names))
    model.head = nn.Linear(weight.shape[1], len(names)).to(base.model_.mean.device).requires_grad_(False)
    with torch.no_grad():
        model.head.weight.copy_(weight)
        model.head.bias.copy_(bias)
    made = copy.copy(base)
    made._set_file(None)
    made.model_, made.classes_, made.backbone_ = model, np.array(names), dict(base.backbone_)
    made.skipped_, made.history_ = [], None
    made.finetune, made.composed, made.class_weight, made.regularisation = None, 0, None, "auto"
    made.regularisation_ = made.cv_accuracy_ = None
    return made


def _sample(base: SceneClassifier, examples: Examples, block: float, look: Look | None) -> TrainingSample:
    """Of the labelled cells; distances are those of held-out blocks of land."""
    targets = examples.targets.numpy().astype(np.int64)
    folds = block_folds(block_numbers(examples.places.numpy(), block), targets)
    if folds is None:
        folds = draw_folds(targets, 0)
    usual = np.ones(len(examples), bool)
    reduced = reduce_rows(base.model_, examples.vectors.float())
    sample, chosen = take_sample(reduced, targets, folds, usual, len(examples))
    if look is None:
        return sample
    pictures: list[Array] = []
    for number in chosen[:PICTURES]:
        found = look(examples.places[int(number)].numpy(), PICTURE)
        if found is None:
            break
        pictures.append((255 * found).round().astype(np.uint8))
    return with_pictures(sample, pictures) if pictures else sample


def _provenance(base: SceneClassifier, examples: Examples, card: dict[str, Any]) -> dict[str, Any]:
    said: tuple[str, ...] = ("weights", "engine", "descriptor")
    kept = {name: base.provenance_[name] for name in said if name in base.provenance_}
    return {
        "images": len(examples),
        "skipped": 0,
        "seed": 0,
        "parameters": {"descriptor": str(base.descriptor), "regularisation": "auto"},
        **kept,
        **provenance.made(),
        "taught": card,
    }


def _metrics(learned: Learned, block: float) -> dict[str, Any]:
    metrics: dict[str, Any] = {}
    held_out = learned.held_out[~np.isnan(learned.held_out).any(1)]
    if len(held_out):
        metrics[provenance.CONFIDENCE] = provenance.percentiles(torch.from_numpy(held_out))
    if learned.random is not None:
        metrics[provenance.CV_ACCURACY] = learned.random.value
    for name, found in (("blocks", learned.estimate), ("random", learned.random)):
        if found is not None:
            metrics[f"accuracy_{name}"] = {"value": found.value, "low": found.low, "high": found.high}
    return {**metrics, "block": block}


def _by_class(
    learned: Learned, right: Array, pool: Pool, names: Sequence[str], block: float
) -> dict[str, tuple[int, Estimate | None]]:
    blocks = block_numbers(pool.places, block)
    found: dict[str, tuple[int, Estimate | None]] = {}
    for number, name in enumerate(names):
        own = learned.targets == number
        told = own & (right >= 0)
        share = blocked_share(right[told] > 0, blocks[told]) if told.any() and learned.estimate is not None else None
        found[name] = int(own.sum()), share
    return found


def regrouped(examples: Examples, classes: Sequence[str], names: Sequence[str]) -> tuple[Examples, list[str]]:
    """Examples whose classes have other names; those that become the same are one, and of empty names none.

    Args:
        examples: To be renumbered.
        classes: Their names now.
        names: For each class the name that it shall have.
    """
    wanted = sorted({name for name in names if name})
    numbers = [wanted.index(name) if name else -1 for name in names]
    assert len(numbers) == len(classes)
    return examples.renumbered(numbers), wanted
