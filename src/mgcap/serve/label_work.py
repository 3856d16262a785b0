"""Labelling itself: labels, undo and redo, where to look next, what is alike, and what may be wrong."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from mgcap.errors import DataError
from mgcap.labelling.live import Live
from mgcap.labelling.mistakes import mistakes
from mgcap.labelling.project import Stepped
from mgcap.labelling.similar import similar
from mgcap.labelling.store import Cell
from mgcap.labelling.suggestions import suggest
from mgcap.serve.labellers import person_of

#: Cells that may be labelled at once, and proposed at once.
MOST_CELLS, MOST_PROPOSED = 20_000, 100
#: Of this many cells that teach most one is drawn at random, by which the map can be measured.
MEASURED = 5
#: A cell in an address: raster, row and column.
Listed = Annotated[str, Field(pattern=r"^[0-9]{1,9},[0-9]{1,9},[0-9]{1,9}$")]
Place = Annotated[int, Field(ge=0, le=1 << 31)]
Count = Annotated[int, Query(ge=1, le=MOST_PROPOSED)]
At = Annotated[int, Query(ge=0, le=1 << 31)]


class Labels(BaseModel):
    """Cells, as raster, row and column, with their class; none clears them.

    Who sends it again, as no answer came, gives the same name with ``once``: it is written one time.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    cells: Annotated[list[Annotated[list[Place], Field(min_length=3, max_length=3)]], Field(max_length=MOST_CELLS)]
    number: Annotated[int, Field(ge=1)] | None = None
    resolve: bool = False
    suggested: bool = False
    once: Annotated[str, Field(min_length=8, max_length=100)] | None = None


def add_work(router: APIRouter, live: Live, user: str) -> None:
    """Routes on labels."""
    _add_labels(router, live, user)
    _add_proposals(router, live)
    _add_doubts(router, live, user)

    @router.get("/cell", summary="What is known of a cell")
    def cell(raster: At, row: At, col: At) -> dict[str, Any]:
        return _cell_info(live, _cell(live, [raster, row, col]))


def _add_labels(router: APIRouter, live: Live, user: str) -> None:
    @router.post("/label", summary="Label cells; it is on the disk when this is answered")
    def label(request: Request, body: Labels) -> dict[str, Any]:
        cells = [_cell(live, own) for own in body.cells]
        known = [own for own in cells if live.number(own) is not None] if body.number is not None else cells
        if cells and not known:
            raise DataError("there is no data in this cell, so it cannot be labelled")
        person = person_of(request, user)
        changed = live.project.label(known, body.number, person, body.resolve, body.suggested, body.once)
        live.refresh()
        return {"changed": changed, "revision": live.revision}

    @router.post("/undo", summary="Undo one's last step")
    def undo(request: Request) -> dict[str, Any]:
        return _stepped(live, live.project.undo(person_of(request, user)))

    @router.post("/redo", summary="Do again what one undid last")
    def redo(request: Request) -> dict[str, Any]:
        return _stepped(live, live.project.redo(person_of(request, user)))


def _stepped(live: Live, cells: Stepped) -> dict[str, Any]:
    live.refresh()
    there = [own for own in cells if own.raster in live.project.names]
    listed = [_place(live, own) for own in there[:MOST_CELLS]]
    return {"cells": listed, "left": cells.left, "revision": live.revision}


def _add_proposals(router: APIRouter, live: Live) -> None:
    @router.get("/suggest", summary="Where to look next, and why")
    def suggestions(
        mode: Literal["teach", "rare", "unknown", "random"] = "teach",
        count: Count = 10,
        measure: Annotated[int | None, Query(ge=0, le=MOST_PROPOSED)] = None,
        keep: Annotated[list[Listed], Query(max_length=MOST_PROPOSED)] = [],  # noqa: B006 (it is not changed)
    ) -> dict[str, Any]:
        fitted = live.wait_fitted()
        taken = {n: 0 for own in list(live.conflicts) if (n := live.number(own)) is not None} | fitted.labels
        kept = [_cell(live, [int(part) for part in own.split(",")]) for own in keep]
        taken |= {n: 0 for own in kept if (n := live.number(own)) is not None}
        if mode == "random":
            return {"revision": fitted.revision, "cells": _at_random(live, taken, count)}
        spared = (count // MEASURED if mode == "teach" else 0) if measure is None else min(measure, count)
        drawn = _at_random(live, taken, spared, "a random place, to measure by")
        taken |= {n: 0 for own in drawn if (n := live.number(_cell(live, own["cell"]))) is not None}
        found = suggest(live.pool, fitted.learned, taken, mode, count - spared, live.names(), len(fitted.labels))
        hard = [
            {"cell": _of(live, own.cell), "reason": own.reason, "score": float(own.score), "random": False}
            for own in found
        ]
        return {"revision": fitted.revision, "cells": _between(hard, drawn)}

    @router.get("/similar", summary="Cells that show the same as one, however they are turned")
    def alike(raster: At, row: At, col: At, count: Count = 10) -> dict[str, Any]:
        number = live.number(_cell(live, [raster, row, col]))
        if number is None:
            raise DataError("there is no data in this cell")
        skip = [n for own in list(live.said) if (n := live.number(own)) is not None]
        found = similar(live.pool, number, count, skip)
        return {"cells": [{"cell": _of(live, own), "score": round(float(score), 4)} for own, score in found]}


def _add_doubts(router: APIRouter, live: Live, user: str) -> None:
    @router.get("/mistakes", summary="One's labels that all others contradict")
    def wrong(request: Request, count: Count = 20) -> dict[str, Any]:
        learned = live.wait_fitted().learned
        found = [] if learned is None else mistakes(learned, count, _labelled_by(live, person_of(request, user)))
        return {
            "cells": [
                {"cell": _of(live, own.cell), "given": own.given, "likely": own.likely,
                 "probability": round(float(own.probability), 4)}
                for own in found
            ]
        }  # fmt: skip

    @router.get("/conflicts", summary="Cells of which people say different things")
    def conflicts() -> dict[str, Any]:
        listed = list(live.conflicts.items())[:MOST_CELLS]
        return {"cells": [{"cell": _place(live, cell), "labels": _said(labels)} for cell, labels in listed]}


def _labelled_by(live: Live, person: str) -> set[int]:
    """Cells of the pool whose class is what a person says."""
    own = [
        cell
        for cell, labels in list(live.said.items())
        if any(label.who == person and label.number == live.agreed.get(cell) for label in labels)
    ]
    return {n for cell in own if (n := live.number(cell)) is not None}


def _between(hard: list[dict[str, Any]], drawn: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Drawn cells spread over the others, so that who labels the first few labels some of these too."""
    found, step = list(hard), max(1, -(-len(hard) // max(1, len(drawn))))
    for number, own in enumerate(drawn):
        found.insert((number + 1) * step + number, own)
    return found


def _at_random(
    live: Live, taken: Collection[int], count: int, reason: str = "drawn at random, to measure the map"
) -> list[dict[str, Any]]:
    """Cells that say how right the map is, whose tiles overlap neither each other nor labelled ones if possible."""
    near = {other for own in taken for other in live.pool.near(own)}
    order = np.random.default_rng((len(taken), 5)).permutation(len(live.pool)).tolist()
    found: list[int] = []
    for own in order:
        if len(found) < count and own not in near:
            found.append(own)
            near.update(live.pool.near(own))
    # where labels are everywhere
    if len(found) < count:
        found += [own for own in order if own not in taken and own not in found][: count - len(found)]
    return [{"cell": _of(live, own), "reason": reason, "score": 1.0, "random": True} for own in found]


def _cell(live: Live, place: list[int]) -> Cell:
    raster, row, col = place
    if raster >= len(live.project.names):
        raise DataError("there is no such raster")
    cell = Cell(live.project.names[raster], row, col)
    live.project.check_cells([cell])
    return cell


def _place(live: Live, cell: Cell) -> list[int]:
    return [live.project.names.index(cell.raster), cell.row, cell.col]


def _of(live: Live, number: int) -> list[int]:
    return [int(own) for own in live.pool.cells[number]]


def _said(labels: Any) -> list[dict[str, Any]]:
    return [{"who": own.who, "number": own.number, "at": own.at, "resolves": own.resolves} for own in labels]


def _cell_info(live: Live, cell: Cell) -> dict[str, Any]:
    number, fitted = live.number(cell), live.fitted
    found: dict[str, Any] = {
        "cell": _place(live, cell),
        "data": number is not None,
        "labels": _said(live.said.get(cell, ())),
        "number": live.agreed.get(cell),
        "conflict": cell in live.conflicts,
        "probabilities": [],
        "distance": None,
        "unknown": False,
    }
    if number is not None and fitted.learned is not None:
        learned = fitted.learned
        rows = zip(learned.classes.tolist(), learned.probabilities[number].tolist(), strict=True)
        best = sorted(rows, key=lambda own: -own[1])
        found["probabilities"] = [{"number": own, "probability": round(p, 4)} for own, p in best]
        found["distance"] = round(float(learned.distance[number]), 4)
        found["unknown"] = bool(learned.distance[number] > learned.limit)
    return found
