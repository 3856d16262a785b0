"""Is the map right? A map compared with what is known of some places."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from mgcap.errors import DataError, did_you_mean
from mgcap.evaluation.assessment import (
    Accuracy,
    Estimate,
    Stratified,
    confusion_matrix,
    count_accuracy,
    estimate_stratified,
)
from mgcap.geo.cellmap import CellMap, read_cells
from mgcap.geo.joining import Joined, are_points, join
from mgcap.geo.names import Merged, match_names, merge_classes, plain_name, read_names
from mgcap.geo.vectors import Vectors, read_vectors
from mgcap.inference.unknown import UNKNOWN
from mgcap.typing import Array

#: How a reference was sampled.
DESIGNS = ("auto", "stratified", "random", "other")
#: Fields of the points that ``mgcap datasets sample`` draws: the stratum, and the area that a point stands for.
STRATUM, STANDS_FOR = "map_class", "area"


@dataclass(frozen=True)
class Assessed:
    """How right a map is.

    Attributes:
        summary: Everything, as it stands in the JSON file.
        counted: Accuracies of the units themselves.
        stratified: Estimates for the area; None where the reference is no random sample.
        files: What was written.
    """

    summary: dict[str, Any]
    counted: Accuracy
    stratified: Stratified | None
    files: list[Path] = field(default_factory=list)


def assess(
    map_path: str | Path,
    reference: str | Path,
    field: str = "class",
    names: str | Path | None = None,
    *,
    design: str = "auto",
    out: Path | None = None,
    command: str = "",
) -> Assessed:
    """Compare a map with points or polygons, and write tables and a page.

    Args:
        map_path: What ``mgcap map`` wrote: the polygons or the class raster.
        reference: A GeoPackage, Shapefile, GeoJSON, GeoParquet or CSV file with points or polygons.
        field: Its field with the class.
        names: A CSV file with the columns ``reference`` and ``map``, for classes that are called otherwise. A name in
            several rows is several classes of the map, which are compared as one.
        design: How the points were sampled: ``stratified`` by the field ``map_class``, as by ``mgcap datasets sample``;
            ``random`` for a simple random sample of the map's area; ``other`` if by neither; ``auto`` is stratified
            if there is such a field.
        out: The files are written beside this one under its name; by default beside the map.
        command: How to repeat it, for the page.
    """
    from mgcap.report.assessment import write_assessment

    whole = read_cells(map_path)
    vectors = read_reference(reference, field, design)
    cells, merged = _merged(whole, names)
    classes, truth = _classes_of(vectors, field, merged)
    chosen = _chosen_design(design, vectors)
    vectors = vectors.into(cells.place.crs)
    joined = join(cells, vectors, truth)
    mapped, found = cells.numbers[tuple(joined.cells.T)].astype(np.int64), joined.truth
    counted = count_accuracy(confusion := confusion_matrix(mapped, found, len(classes)), cells.unknown)
    stratified, notes = None, _notes(joined, chosen, are_points(vectors))
    if chosen != "other":
        strata, sizes, labels = _strata(cells if chosen == "random" else whole, vectors, joined, chosen)
        stratified = estimate_stratified(mapped, found, strata, sizes, len(classes), cells.unknown)
        notes += _notes_on_strata(strata, sizes, labels)
    areas = np.zeros(len(classes))
    areas[: len(cells.classes)] = cells.class_areas()
    summary = {
        "map": cells.path.name,
        "reference": vectors.name,
        "field": field,
        "design": chosen,
        "units": "points" if are_points(vectors) else "cells",
        "compared": len(found),
        "left_out": joined.left_out,
        "notes": notes,
        "area_unit": cells.place.unit.removeprefix("area_"),
        "classes": classes,
        "mapped_areas": areas.tolist(),
        "confusion": confusion.tolist(),
        "counts": _accuracies(counted, classes),
        "stratified": _estimates(stratified, classes) if stratified else None,
    }
    files = write_assessment(summary, out or cells.path, command=command)
    return Assessed(summary, counted, stratified, files)


def read_reference(path: str | Path, field: str, design: str = "auto") -> Vectors:
    """Read a reference, with its strata if it has them.

    Raises:
        DataError: If it cannot be one, by itself.
    """
    if design not in DESIGNS:
        raise DataError(f"`design` takes {', '.join(DESIGNS)}, not '{design}'{did_you_mean(design, DESIGNS)}")
    vectors = read_vectors(path, [field], [STRATUM, STANDS_FOR])
    are_points(vectors)
    if all(value is None for value in vectors.columns[field]):
        raise DataError(f"the field '{field}' of {vectors.name} is empty: no feature has a class yet")
    return vectors


def check_reference(
    path: str | Path, field: str, classes: Sequence[str], names: str | Path | None = None, design: str = "auto"
) -> None:
    """Say now what is wrong with a reference, rather than when the map is there; but for where it lies.

    Raises:
        DataError: With one sentence.
    """
    vectors = read_reference(path, field, design)
    _classes_of(vectors, field, merge_classes([*classes, UNKNOWN], read_names(names) if names else None))
    _chosen_design(design, vectors)


def _merged(cells: CellMap, names: str | Path | None) -> tuple[CellMap, Merged]:
    """A map with those classes as one that are one in the reference."""
    merged = merge_classes(cells.classes, read_names(names) if names else None)
    return replace(cells, classes=merged.classes, numbers=np.array([*merged.numbers, -1])[cells.numbers]), merged


def _classes_of(vectors: Vectors, field: str, merged: Merged) -> tuple[list[str], Array]:
    """The classes of map and reference, and the number of each feature's class: -1 for none."""
    own = [value for value in vectors.columns[field] if value is not None]
    known = [name for name in merged.classes if name != UNKNOWN]
    matched = match_names(own, known, merged.names, vectors.name)
    every = list(dict.fromkeys((*merged.classes, *matched.values())))
    return every, np.array([-1 if v is None else every.index(matched[v]) for v in vectors.columns[field]], np.int64)


def _chosen_design(design: str, vectors: Vectors) -> str:
    points, strata = are_points(vectors), vectors.columns.get(STRATUM)
    if design == "auto":
        return "stratified" if points and strata and None not in strata else "other"
    if design != "other" and not points:
        raise DataError(f"`design={design}` is for points, and {vectors.name} has polygons")
    if design == "stratified" and (not strata or None in strata):
        raise DataError(f"`design=stratified` needs the stratum of each point in the field '{STRATUM}'")
    return design


def _strata(cells: CellMap, vectors: Vectors, joined: Joined, design: str) -> tuple[Array, Array, list[str]]:
    """The stratum of each unit, their areas and names; the classes of the map, before some became one, are strata.

    Raises:
        DataError: If the areas of strata that are not those of the map are not known.
    """
    mapped = cells.numbers[tuple(joined.cells.T)].astype(np.int64)
    if design == "random":
        return mapped, cells.class_areas(), list(cells.classes)
    said = [str(name) for name in vectors.columns[STRATUM]]
    known = {plain_name(name): number for number, name in enumerate(cells.classes)}
    own = np.array([known.get(plain_name(name), -1) for name in said])[joined.source]
    if (own == mapped).all():
        return mapped, cells.class_areas(), list(cells.classes)
    stands_for = _numbers(vectors.columns.get(STANDS_FOR, [None]))
    if stands_for is None:
        raise DataError(
            f"{int((own != mapped).sum())} points of {vectors.name} were drawn from another map, by its field "
            f"'{STRATUM}', and the area that each stands for (field '{STANDS_FOR}') is missing; `design=other` does "
            "without estimates for the area"
        )
    labels = sorted(set(said))
    strata = np.array([labels.index(name) for name in said])
    return strata[joined.source], np.bincount(strata, stands_for, len(labels)), labels


def _numbers(values: Sequence[str | None]) -> Array | None:
    """All values as positive numbers; None if they are not."""
    try:
        found = np.array([float(value or "nan") for value in values])
    except ValueError:
        return None
    return found if (found > 0).all() and np.isfinite(found).all() else None


def _notes(joined: Joined, design: str, points: bool) -> list[str]:
    notes = [f"Not compared: {count} {why}." for why, count in joined.left_out.items()]
    if not points:
        notes.append(
            "Cells of one polygon are alike, so that intervals are too narrow; polygons that someone chose are no "
            "sample of the area."
        )
    if design == "other":
        advice = "; give `design=random` if the points are a simple random sample" if points else ""
        notes.append(
            f"The reference is not known to be a random sample, so nothing is estimated for the whole area{advice}."
        )
    if design == "random":
        notes.append("Stratified by the map after drawing, on your word that the points are a simple random sample.")
    return notes


def _notes_on_strata(strata: Array, sizes: Array, labels: Sequence[str]) -> list[str]:
    counts = np.bincount(strata, minlength=len(sizes))
    empty, single = (counts == 0) & (sizes > 0), (counts == 1) & (sizes > 0)
    notes = []
    if empty.any():
        share = 100 * sizes[empty].sum() / sizes.sum()
        listed = ", ".join(np.array(labels, object)[empty])
        notes.append(f"Without points, so not part of the estimates: {listed} ({share:.2f} % of the area).")
    if single.any():
        listed = ", ".join(np.array(labels, object)[single])
        notes.append(f"With one point, so that standard errors do not count how it varies: {listed}.")
    return notes


def _number(estimate: Estimate | None) -> dict[str, float] | None:
    return None if estimate is None else {k: v for k, v in asdict(estimate).items() if v is not None}


def _accuracies(found: Accuracy, classes: Sequence[str]) -> dict[str, Any]:
    return {
        "overall": _number(found.overall),
        "overall_without_unknown": _number(found.known),
        "users": dict(zip(classes, map(_number, found.users), strict=True)),
        "producers": dict(zip(classes, map(_number, found.producers), strict=True)),
    }


def _estimates(found: Stratified, classes: Sequence[str]) -> dict[str, Any]:
    return {
        **_accuracies(found, classes),
        "total_area": found.total,
        "areas": dict(zip(classes, map(_number, found.areas), strict=True)),
        "proportions": found.proportions.round(9).tolist(),
    }
