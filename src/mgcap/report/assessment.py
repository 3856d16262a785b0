"""The tables and the page of a map that was compared with a reference."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mgcap.persistence.files import atomic_path, write_json, write_rows
from mgcap.report.charts import new_figure
from mgcap.report.colours import CHART, GREY
from mgcap.report.page import picture_uri, render, shade

#: Of :func:`mgcap.geo.reference.assess`.
Summary = Mapping[str, Any]
Table = dict[str, Any]

_DESIGNS = {
    "stratified": "a random sample, stratified by map class",
    "random": "a simple random sample",
    "other": "not known to be a random sample",
}


def write_assessment(summary: Summary, beside: Path, *, command: str = "") -> list[Path]:
    """Write JSON, CSV and a page beside a map, under its name.

    Args:
        summary: What was found.
        beside: The map.
        command: How to repeat it.
    """
    kinds = (".assessment.html", ".assessment.json", ".assessment.csv", ".confusion.csv")
    page, whole, table, confusion = (beside.with_suffix(kind) for kind in kinds)
    write_json(whole, summary)
    write_rows(table, _rows(summary))
    names = summary["classes"]
    write_rows(
        confusion,
        [
            {"map": name} | dict(zip(names, row, strict=True))
            for name, row in zip(names, summary["confusion"], strict=True)
        ],
    )
    write_page(summary, page, command=command)
    return [page, whole, table, confusion]


def _rows(summary: Summary) -> list[dict[str, Any]]:
    """A row for each class, and one for all."""
    unit, names = summary["area_unit"], summary["classes"]
    matrix, areas = summary["confusion"], summary["mapped_areas"]
    found = [("counts", summary["counts"]), ("stratified", summary["stratified"])]
    rows = []
    for k, name in [*enumerate(names), (None, "all")]:
        row: dict[str, Any] = {"class": name}
        row["in_map"] = summary["compared"] if k is None else sum(matrix[k])
        row["in_reference"] = summary["compared"] if k is None else sum(own[k] for own in matrix)
        row["right"] = sum(own[i] for i, own in enumerate(matrix)) if k is None else matrix[k][k]
        for kind, values in found:
            for what in ("users", "producers"):
                own = values and (values["overall"] if k is None else values[what][name])
                row |= _columns(f"{kind}_{what}", own, 6)
        row[f"mapped_{unit}"] = f"{sum(areas) if k is None else areas[k]:.6g}"
        stratified = summary["stratified"]
        row |= _columns(f"estimated_{unit}", stratified["areas"][name] if stratified and k is not None else None, 0)
        rows.append(row)
    return rows


def _columns(name: str, estimate: Mapping[str, float] | None, digits: int) -> dict[str, str]:
    """The columns of an estimate; those of counts have no standard error."""
    parts = ("value", "low", "high") if name.startswith("counts") else ("value", "low", "high", "error")
    form = f".{digits}f" if digits else ".6g"
    return {name if p == "value" else f"{name}_{p}": f"{estimate[p]:{form}}" if estimate else "" for p in parts}


def headline(summary: Summary) -> tuple[str, str]:
    """The overall accuracy, and what it is."""
    stratified = summary["stratified"]
    best = stratified or summary["counts"]
    low, high = (f"{100 * best['overall'][end]:.1f}" for end in ("low", "high"))
    of = "of the area" if stratified else f"of {summary['compared']} {summary['units']}"
    note = f"overall accuracy, {of}; 95 % confidence interval {low} to {high}"
    if known := best["overall_without_unknown"]:
        note += f"; {100 * known['value']:.1f} % where the map is not unknown"
    return f"{100 * best['overall']['value']:.1f} %", note


def assessment_tables(summary: Summary) -> list[Table]:
    """What is printed and shown, but for the confusion matrix: ``title``, ``columns``, ``rows`` and ``note``."""
    tables = []
    if summary["stratified"]:
        tables.append(
            {
                "title": "Estimates for the whole area",
                "columns": (
                    "class",
                    *_ACCURACY,
                    f"mapped, {_short(summary)}",
                    "estimated",
                    "standard error",
                    "95 % interval",
                ),
                "rows": _lines(summary, summary["stratified"], areas=True),
                "note": f"Accuracy in percent of the area, areas in {_unit(summary)[1]}. Estimators of Olofsson et al. "
                "(2014), which adjust for errors of the map; intervals are 1.96 standard errors on both sides, "
                "and missing where all points say the same.",
            }
        )
    tables.append(
        {
            "title": f"Counts of {summary['units']}",
            "columns": ("class", "in map", "in reference", "right", *_ACCURACY),
            "rows": _lines(summary, summary["counts"], areas=False),
            "note": "Accuracy in percent, with Wilson's intervals."
            + (
                " More points were drawn of rare classes, so these are not shares of the area."
                if summary["design"] == "stratified"
                else ""
            ),
        }
    )
    return tables


_ACCURACY = ("user's accuracy", "95 % interval", "producer's accuracy", "95 % interval")


def _unit(summary: Summary) -> tuple[float, str]:
    """How many units of the areas make one of those shown, and what that is called."""
    if summary["area_unit"] != "m2":
        return 1.0, "units of the raster"
    return (1e4, "hectares") if sum(summary["mapped_areas"]) > 1e4 else (1.0, "square metres")


def _short(summary: Summary) -> str:
    return {"hectares": "ha", "square metres": "m²"}.get(name := _unit(summary)[1], name)


def shown_classes(summary: Summary) -> list[int]:
    """Numbers of the classes that occur among what was compared, or on the map if areas are estimated."""
    matrix, areas = summary["confusion"], summary["mapped_areas"]
    return [
        k
        for k in range(len(matrix))
        if sum(matrix[k]) or sum(row[k] for row in matrix) or (summary["stratified"] and areas[k])
    ]


def _lines(summary: Summary, found: Mapping[str, Any], *, areas: bool) -> list[tuple[Any, ...]]:
    matrix, names, (unit, _) = summary["confusion"], summary["classes"], _unit(summary)
    lines: list[tuple[Any, ...]] = []
    for k in shown_classes(summary):
        accuracy = (*_percent(found["users"][names[k]]), *_percent(found["producers"][names[k]]))
        if not areas:
            lines.append((names[k], sum(matrix[k]), sum(row[k] for row in matrix), matrix[k][k], *accuracy))
            continue
        area, mapped = ("-", "-", "-"), f"{summary['mapped_areas'][k] / unit:,.1f}"
        if own := found["areas"][names[k]]:
            value, error, low, high = (f"{own[part] / unit:,.1f}" for part in ("value", "error", "low", "high"))
            area = value, error, f"{low} to {high}"
        lines.append((names[k], *accuracy, mapped, *area))
    return lines


def _percent(estimate: Mapping[str, float] | None) -> tuple[str, str]:
    if estimate is None:
        return "-", "-"
    value = f"{100 * estimate['value']:.1f}"
    if estimate.get("error") == 0:  # all units alike: how they vary cannot be seen
        return value, "-"
    return value, f"{100 * estimate['low']:.1f} to {100 * estimate['high']:.1f}"


def confusion_table(summary: Summary) -> tuple[Sequence[str], list[tuple[Any, ...]]]:
    """Columns and rows of the confusion matrix, its columns by number to be narrow."""
    shown, matrix, names = shown_classes(summary), summary["confusion"], summary["classes"]
    rows = [
        (f"{place} {names[k]}", *(matrix[k][j] or "." for j in shown), sum(matrix[k]))
        for place, k in enumerate(shown, 1)
    ]
    return ("map \\ reference", *(str(place) for place in range(1, len(shown) + 1)), "sum"), rows


def write_page(summary: Summary, path: Path, *, command: str = "") -> None:
    """Write the page."""
    shown, matrix, names = shown_classes(summary), summary["confusion"], summary["classes"]
    part = [[matrix[k][j] for j in shown] for k in shown]
    value, note = headline(summary)
    charts = []
    if summary["stratified"]:
        charts = [{"title": "area of each class, mapped and estimated", "data": picture_uri(area_chart(summary))}]
    html = render(
        "assessment.html.j2",
        title=f"Is {summary['map']} right?",
        subtitle=f"{summary['compared']} {summary['units']} of {summary['reference']}, {_DESIGNS[summary['design']]}",
        headline=value,
        headline_note=note,
        tables=assessment_tables(summary),
        charts=charts,
        classes=[names[k] for k in shown],
        confusion=part,
        shade=shade(part),
        units=summary["units"],
        notes=summary["notes"],
        command=command,
        details=json.dumps({k: summary[k] for k in ("map", "reference", "field", "design", "left_out")}, indent=1),
    )
    with atomic_path(path) as temporary:
        temporary.write_text(html, encoding="utf-8")


def area_chart(summary: Summary) -> Any:
    """Areas as mapped and as estimated, with their intervals; the largest on top."""
    (unit, name), areas = _unit(summary), summary["mapped_areas"]
    found = summary["stratified"]["areas"]
    none = {"value": float("nan"), "low": float("nan"), "high": float("nan")}
    by_class = {k: found[summary["classes"][k]] or none for k in shown_classes(summary)}
    shown = sorted(by_class, key=lambda k: -max(areas[k], by_class[k]["value"]))
    own = [by_class[k] for k in shown]
    figure = new_figure(9, 1.2 + 0.32 * len(shown))
    axes = figure.subplots()
    places = range(len(shown))
    axes.barh(places, [areas[k] / unit for k in shown], color=GREY, height=0.6, label="mapped")
    values = [e["value"] / unit for e in own]
    spread = [[(e["value"] - e["low"]) / unit for e in own], [(e["high"] - e["value"]) / unit for e in own]]
    axes.errorbar(values, places, xerr=spread, fmt="o", color=CHART[0], capsize=3, label="estimated, 95 % interval")
    axes.set_yticks(places, [summary["classes"][k] for k in shown])
    axes.invert_yaxis()
    axes.set_xlim(left=0)
    axes.set_xlabel(f"area, {name}")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="lower right")
    return figure
