"""Classes that are added to a model, merged, renamed and removed, without the images that it was taught by.

A model that carries its examples is taught again by all of them together, so what comes out is what training from
scratch on the same labels gives.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from mgcap.errors import DataError, MgcapError, did_you_mean
from mgcap.evaluation.assessment import Estimate
from mgcap.evaluation.spatial import block_numbers, blocked_share
from mgcap.geo.labels import SEVERAL
from mgcap.inference.examples import FAR, Examples, joined, moved, places_used, same_cells, settled
from mgcap.inference.projection import projection_for
from mgcap.labelling.rasters import Drawn, examples_of
from mgcap.labelling.teaching import Look, Taught, regrouped, teach
from mgcap.typing import Array

if TYPE_CHECKING:
    from mgcap.classifier import SceneClassifier


class Change(NamedTuple):
    """What became of a class."""

    labels_before: int
    labels_now: int
    before: Estimate | None  #: share that the model was right about while their blocks were held out; None if unknown
    now: Estimate | None  #: the same of the new one


@dataclass(frozen=True)
class Grown:
    """A model that was taught more.

    Attributes:
        taught: The new model.
        before: Share of the new labels that the model was right about before it had seen them; None without any.
        after: Share of the same labels that the new one is right about while their block is held out.
        added: Classes that are new.
        gone: Classes that are no more.
        changes: For each class, by its name now.
        left_out: Labels that were left out as old and new ones contradict each other, by reason.
    """

    taught: Taught
    before: Estimate | None
    after: Estimate | None
    added: tuple[str, ...]
    gone: tuple[str, ...]
    changes: dict[str, Change]
    left_out: dict[str, int]


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
    every, all_names, contradicted, look = old.ordered(), wanted, 0, None
    new = None
    if drawn is not None:
        all_names = sorted({*wanted, *drawn.classes})
        placed, contested, look = _placed(known, drawn, card)
        old = old.without(np.unique(same_cells(old, contested)[0]))
        new = placed.renumbered([all_names.index(name) for name in drawn.classes])
        every, contradicted = settled(old.renumbered([all_names.index(name) for name in wanted]), new)
    left_out = {SEVERAL: contradicted} if contradicted else {}
    _note(card, every, all_names, drawn, left_out, side)
    taught = teach(base, every, all_names, block=side, card=card, keep=keep, look=look)
    before, after = (None, None) if new is None else _compared(base, names, taught, new, all_names)
    final = [str(name) for name in taught.classifier.classes_]
    gone = tuple(name for name in classes if name not in final)
    added = tuple(name for name in final if name not in classes)
    return Grown(taught, before, after, added, gone, _changes(base, known, names, taught), left_out)


def _placed(known: Examples, drawn: Drawn, card: dict[str, Any]) -> tuple[Examples, Examples, Look]:
    """New labels where they lie, and what they contradict themselves about.

    On rasters without a place on the Earth they lie beside those of the card.

    The card takes the names of the rasters. One that the model was taught by before lies where it lay.
    """
    rasters: list[str] = [str(name) for name in card.get("rasters", ())]
    card["rasters"] = rasters
    if card.get("unit", drawn.unit) != drawn.unit:
        what = ("has no place", "have one") if drawn.unit == "pixels" else ("lies on the Earth", "have no place there")
        raise DataError(f"{drawn.rasters[0]} {what[0]}, and the rasters of the model {what[1]}")
    if drawn.unit == "m":
        rasters += [name for name in dict.fromkeys(drawn.rasters) if name not in rasters]
        return drawn.examples, _contested(drawn, range(len(drawn.indexes))), drawn.look
    rasters += [""] * (places_used(known) - len(rasters))
    parts, begin, before = [], 0, {}
    for number, (name, labelled) in enumerate(zip(drawn.rasters, drawn.labelled, strict=True)):
        own = drawn.examples.part(torch.arange(begin, begin + len(labelled.cells)))
        begin += len(own)
        slot = _slot(known, own, name, number, [("" if k in before else other) for k, other in enumerate(rasters)])
        if slot == len(rasters):
            rasters.append(name)
        parts.append(moved(own, slot - number))
        before[slot] = number

    def look(place: Array, side: int) -> Array | None:
        slot = int(place[0] // FAR)
        return drawn.look(place + np.array([FAR * (before[slot] - slot), 0.0]), side) if slot in before else None

    return joined(parts), _contested(drawn, before), look


def _contested(drawn: Drawn, slots: Iterable[int]) -> Examples:
    """Cells about which new labels contradict themselves, without classes; for each raster where it lies."""
    every = zip(drawn.indexes, drawn.labelled, slots, strict=True)
    return joined([examples_of(index, own.conflicts, np.zeros(len(own.conflicts)), slot) for index, own, slot in every])


def _slot(known: Examples, own: Examples, name: str, number: int, rasters: Sequence[str]) -> int:
    """Which of the rasters of the model, by its name and what it shows, a raster is; the next one if none."""
    for slot, other in enumerate(rasters):
        if other in (name, Path(name).stem) and not same_cells(known, moved(own, slot - number))[2]:
            return slot
    return len(rasters)


def _note(
    card: dict[str, Any],
    every: Examples,
    classes: Sequence[str],
    drawn: Drawn | None,
    left_out: Mapping[str, int],
    block: float,
) -> None:
    """Let a card say what the model was taught by in all."""
    counts = np.bincount(every.targets.numpy(), minlength=len(classes)).tolist()
    card["labels"] = {name: count for name, count in zip(classes, counts, strict=True) if count}
    card["extended"] = int(card.get("extended", 0)) + 1
    card["block"] = block
    total = dict(card.get("left_out") or {})
    for reasons in (left_out, {} if drawn is None else drawn.left_out):
        for why, count in reasons.items():
            total[why] = total.get(why, 0) + count
    card["left_out"] = total
    if drawn is not None:
        card["files"] = [*card.get("files", ()), *drawn.files]
        card["unit"] = drawn.unit


def _changes(base: SceneClassifier, known: Examples, names: Sequence[str], taught: Taught) -> dict[str, Change]:
    """How right old and new model are about the labels that each was taught by, by the names that classes have now.

    What the old one says of labels that it has not seen is what its own examples alone teach.
    """
    classes = [str(name) for name in base.classes_]
    final = [str(name) for name in taught.classifier.classes_]
    now = _shares(taught, final)
    before: dict[str, tuple[int, Estimate | None]] = {}
    if len(set(known.targets.tolist())) > 1:
        old = teach(base, known, classes, block=taught.block, keep=False)
        after = dict(zip(classes, names, strict=True))
        before = _shares(old, [after[str(name)] for name in old.classifier.classes_])
    none: tuple[int, Estimate | None] = 0, None
    found = {}
    for name in final:
        (count, share), (labels, later) = before.get(name, none), now.get(name, none)
        found[name] = Change(count, labels, share, later)
    return found


def _shares(taught: Taught, names: Sequence[str]) -> dict[str, tuple[int, Estimate | None]]:
    """Labels of each class, and the share that is right, if classes of a model have other names."""
    truth = np.array([names[number] for number in taught.examples.targets.tolist()], object)
    said = np.array([names[number] if number >= 0 else None for number in taught.said.tolist()], object)
    blocks = block_numbers(taught.examples.places.numpy(), taught.block)
    found: dict[str, tuple[int, Estimate | None]] = {}
    for name in dict.fromkeys(names):
        own = truth == name
        told = own & (taught.said >= 0)
        known = told.any() and taught.estimate is not None
        found[name] = int(own.sum()), blocked_share(said[told] == name, blocks[told]) if known else None
    return found


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
    own = np.array([numbers.get(tuple(place), -1) for place in new.places.tolist()])
    told = (own >= 0) & (taught.right[own] >= 0)  # contradicted ones are there no more
    after = blocked_share(taught.right[own][told] > 0, blocks[told]) if told.any() else None
    return before, after
