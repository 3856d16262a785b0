"""Classes that are added to a model, merged, renamed and removed, without the images that it was taught by.

A model that carries its examples is taught again by all of them together, so what comes out is what training from
scratch on the same labels gives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mgcap.errors import DataError, MgcapError, did_you_mean
from mgcap.evaluation.assessment import Estimate
from mgcap.evaluation.spatial import block_numbers, blocked_share
from mgcap.inference.examples import Examples, joined
from mgcap.inference.projection import projection_for
from mgcap.labelling.rasters import Drawn
from mgcap.labelling.teaching import Taught, regrouped, teach

if TYPE_CHECKING:
    from mgcap.classifier import SceneClassifier


@dataclass(frozen=True)
class Grown:
    """A model that was taught more.

    Attributes:
        taught: The new model.
        before: Share of the new labels that the model was right about before it had seen them; None without any.
        after: Share of the same labels that the new one is right about while their block is held out.
        added: Classes that are new.
        gone: Classes that are no more.
    """

    taught: Taught
    before: Estimate | None
    after: Estimate | None
    added: tuple[str, ...]
    gone: tuple[str, ...]


def grow(
    base: SceneClassifier,
    drawn: Drawn | None = None,
    *,
    rename: Mapping[str, str] | None = None,
    merge: Mapping[str, Sequence[str]] | None = None,
    remove: Sequence[str] = (),
    block: float | None = None,
    keep: bool = True,
) -> Grown:
    """Teach a model more, from the examples that it carries.

    Args:
        base: The model.
        drawn: New labels, with vectors of the same network; of classes that it knows, by their new names, or others.
        rename: New names of classes.
        merge: For a class, by its name afterwards, those that it is made of.
        remove: Classes that are forgotten, with their examples.
        block: Side of the blocks that are held out; as before without.
        keep: Let the new model carry its examples, too.

    Raises:
        MgcapError: If the model carries none.
        DataError: If there is no such class.
    """
    known = base.examples_
    if known is None:
        raise MgcapError(
            f"{base.file_ or 'the model'} carries no examples, so nothing can be added to it; it was trained without "
            "`keep_descriptors`, or by an earlier version"
        )
    classes = [str(name) for name in base.classes_]
    names = _new_names(classes, rename or {}, merge or {}, remove)
    old, wanted = regrouped(known, classes, names)
    card = dict(base.provenance_.get("taught") or {})
    side = block or float(base.metrics_.get("block") or 0) or 1.0
    every, all_names = old, wanted
    new = None
    if drawn is not None:
        all_names = sorted({*wanted, *drawn.classes})
        new = drawn.examples.renumbered([all_names.index(name) for name in drawn.classes])
        every = joined([old.renumbered([all_names.index(name) for name in wanted]), new])
    card["extended"] = int(card.get("extended", 0)) + 1
    taught = teach(base, every, all_names, block=side, card=card, keep=keep, look=None if drawn is None else drawn.look)
    before, after = (None, None) if new is None else _compared(base, names, taught, new, all_names)
    final = [str(name) for name in taught.classifier.classes_]
    gone = tuple(name for name in classes if name not in final)
    return Grown(taught, before, after, tuple(name for name in final if name not in classes), gone)


def _new_names(
    classes: Sequence[str], rename: Mapping[str, str], merge: Mapping[str, Sequence[str]], remove: Sequence[str]
) -> list[str]:
    """What each class is called afterwards; empty if it is removed."""
    names = {name: name for name in classes}
    changes = [*rename.items(), *((own, name) for name, parts in merge.items() for own in parts)]
    changes += [(name, "") for name in remove]
    seen: set[str] = set()
    for old, new in changes:
        if old not in names:
            raise DataError(f"the model has no class '{old}'{did_you_mean(old, classes)}; it has {', '.join(classes)}")
        if old in seen:
            raise DataError(f"the class '{old}' is to be changed twice")
        seen.add(old)
        names[old] = new
    clash = next((new for old, new in rename.items() if sum(name == new for name in names.values()) > 1), None)
    if clash is not None:
        raise DataError(f"there would be two classes '{clash}'; `merge` makes one of several")
    return [names[name] for name in classes]


def _compared(
    base: SceneClassifier, names: Sequence[str], taught: Taught, new: Examples, classes: Sequence[str]
) -> tuple[Estimate | None, Estimate | None]:
    """How right the model is about new labels: as it was, and as it is while their blocks are held out."""
    weight, bias = projection_for(base.model_).fold(base.model_.head)
    said = (new.vectors.float() @ weight.T.float() + bias.float()).argmax(1)
    right = np.array([names[int(k)] == classes[int(t)] for k, t in zip(said, new.targets, strict=True)])
    blocks = block_numbers(new.places.numpy(), taught.block)
    before = blocked_share(right, blocks) if len(right) else None
    final = taught.examples
    numbers = {place: number for number, place in enumerate(map(tuple, final.places.tolist()))}
    own = np.array([numbers[tuple(place)] for place in new.places.tolist()])
    told = taught.right[own] >= 0
    after = blocked_share(taught.right[own][told] > 0, blocks[told]) if told.any() else None
    return before, after
