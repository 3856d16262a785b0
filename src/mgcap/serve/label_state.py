"""What a page shows of a project that is labelled."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from mgcap.evaluation.assessment import Estimate
from mgcap.labelling.curve import Point
from mgcap.labelling.live import Fitted, Live
from mgcap.serve.pyramid import Pyramid

#: Points of accuracy by which the last third of the labels must have changed it, for more to be worth while.
WORTH = 0.01


def state_of(live: Live, person: str, pyramids: Sequence[Pyramid], job: dict[str, Any] | None) -> dict[str, Any]:
    """All that a page shows, but for labels and pictures.

    Args:
        live: The project.
        person: Who asks.
        pyramids: Of the rasters.
        job: What is done in the background, if anything.
    """
    revision, fitted = live.revision, live.fitted
    steps = live.project.store.steps(person)
    counts, shares = Counter(live.agreed.values()), live.shares()
    every = Counter(own.number for labels in list(live.said.values()) for own in labels)
    return {
        "revision": revision,
        "labels_revision": live.wanted,
        "fitted_revision": fitted.revision,
        "refitting": live.refitting,
        "project": live.project.folder.resolve().name.removesuffix(".labels"),
        "id": hashlib.sha256(str(live.project.folder.resolve()).encode()).hexdigest()[:16],
        "person": person,
        "rasters": [_raster(live, number, pyramid) for number, pyramid in enumerate(pyramids)],
        "classes": [
            {"number": own.number, "name": own.name, "colour": own.colour, "labels": counts.get(own.number, 0),
             "all": every.get(own.number, 0),  # with those that contradict each other
             "share": round(shares[own.number], 4) if own.number in shares else None}
            for own in live.project.classes
        ],
        "labels": len(live.agreed),
        "conflicts": len(live.conflicts),
        "undo": bool(steps.done),
        "redo": bool(steps.undone),
        **_accuracy(fitted),
        "problem": live.problem,
        "job": job,
    }  # fmt: skip


def _raster(live: Live, number: int, pyramid: Pyramid) -> dict[str, Any]:
    plan = live.project.indexes[number].plan
    return {
        "name": live.project.names[number],
        "width": pyramid.width,
        "height": pyramid.height,
        "finest": pyramid.finest,
        "cell": list(plan.cell),
        "rows": plan.grid.rows,
        "columns": plan.grid.columns,
        "tile": plan.cells_in_tile,
        "changed": f"{plan.changed[0]}-{plan.black:g}-{plan.white:g}",
    }


def _accuracy(fitted: Fitted) -> dict[str, Any]:
    learned, measured, curve = fitted.learned, fitted.measured, list(fitted.curve or ())
    return {
        "fitted": learned is not None,
        "fitted_labels": len(fitted.labels),
        "seconds": None if learned is None else round(learned.seconds, 4),
        "estimate": None if measured is None else _estimate(measured.estimate),
        "measured": None if measured is None else {"labels": measured.labels, "suggested": measured.suggested},
        "random": None
        if learned is None or measured is None or measured.labels < len(learned.cells)
        else _estimate(learned.random),
        "limit": learned.limit if learned is not None and math.isfinite(learned.limit) else None,
        "curve": [{"labels": own.labels, **(_estimate(own.estimate) or {})} for own in curve],
        "advice": advice(fitted, curve),
    }


def _estimate(found: Estimate | None) -> dict[str, float] | None:
    if found is None:
        return None
    return {"value": round(found.value, 4), "low": round(found.low, 4), "high": round(found.high, 4)}


def advice(fitted: Fitted, curve: Sequence[Point]) -> str:
    """Whether more labels are worth while, in a sentence."""
    learned, measured, count = fitted.learned, fitted.measured, len(fitted.labels)
    labels = "label" if count == 1 else "labels"
    if learned is None:
        return "Label cells of two classes, and the map appears."
    if measured is None:
        return f"{count} {labels}: too few, or too close together, to say how right the map is."
    if measured.suggested:
        return (
            f"{count} {labels}, many of them suggested because they are hard: the map is better than this says. "
            "Label some random places to measure it."
        )
    half = (measured.estimate.high - measured.estimate.low) / 2
    if len(curve) < 3:
        return f"{count} {labels}: the accuracy is known to within {100 * half:.0f} points."
    last = curve[-1]
    earlier = max(
        (own for own in curve[:-1] if own.labels <= 2 * last.labels / 3), default=None, key=lambda p: p.labels
    )
    if earlier is None:
        return f"{count} {labels}: the accuracy is known to within {100 * half:.0f} points."
    gain = last.estimate.value - earlier.estimate.value
    since = last.labels - earlier.labels
    if gain < WORTH:
        return f"{count} {labels}: the last {since} have not made the map better; more labels change little."
    return f"{count} {labels}: the last {since} have gained {100 * gain:.0f} points, so more labels are worth while."


def labels_of(live: Live) -> dict[str, Any]:
    """All labelled cells: raster, row, column, and the class; 0 where labels contradict each other."""
    revision = live.wanted
    numbers = {name: number for number, name in enumerate(live.project.names)}
    found = [
        [numbers[own.raster], own.row, own.col, number]
        for own, number in list(live.agreed.items())
        if own.raster in numbers
    ]
    found += [[numbers[own.raster], own.row, own.col, 0] for own in list(live.conflicts) if own.raster in numbers]
    return {"labels_revision": revision, "labels": found}
