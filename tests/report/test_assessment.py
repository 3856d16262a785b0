from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from mgcap.report.assessment import area_chart, assessment_tables, confusion_table, headline, write_assessment


def _whole(value: float, low: float, high: float, error: float | None = None) -> dict[str, float]:
    return {"value": value, "low": low, "high": high} | ({} if error is None else {"error": error})


@pytest.fixture
def summary() -> dict[str, Any]:
    names = ["<b>", "water", "empty", "unknown"]
    users = {"<b>": _whole(0.75, 0.3, 0.9, 0.1), "water": _whole(1.0, 1.0, 1.0, 0.0), "empty": None, "unknown": None}
    accuracy = {
        "overall": _whole(0.8, 0.7, 0.9, 0.05),
        "overall_without_unknown": _whole(0.875, 0.8, 0.95),
        "users": users,
        "producers": users,
    }
    return {
        "map": "map.tif", "reference": "<truth>.gpkg", "field": "class", "design": "stratified", "units": "points",
        "compared": 8, "left_out": {}, "notes": ["One <note>."], "area_unit": "m2", "classes": names,
        "mapped_areas": [50_000.0, 30_000.0, 0.0, 20_000.0],
        "confusion": [[3, 1, 0, 0], [0, 3, 0, 0], [0, 0, 0, 0], [0, 1, 0, 0]],
        "counts": accuracy,
        "stratified": {
            **accuracy, "total_area": 1e5, "proportions": [],
            "areas": {
                "<b>": _whole(4e4, 3e4, 5e4, 5e3), "water": _whole(6e4, 5e4, 7e4, 5e3), "empty": None, "unknown": None
            },
        },
    }  # fmt: skip


def test_tables(summary: dict[str, Any]) -> None:
    area, counts = assessment_tables(summary)
    assert area["rows"] == [
        ("<b>", "75.0", "30.0 to 90.0", "75.0", "30.0 to 90.0", "5.0", "4.0", "0.5", "3.0 to 5.0"),
        ("water", "100.0", "-", "100.0", "-", "3.0", "6.0", "0.5", "5.0 to 7.0"),
        ("unknown", "-", "-", "-", "-", "2.0", "-", "-", "-"),
    ]
    assert "hectares" in area["note"]
    assert [row[:4] for row in counts["rows"]] == [("<b>", 4, 3, 3), ("water", 3, 5, 3), ("unknown", 1, 0, 0)]
    columns, rows = confusion_table(summary)
    assert columns == ("map \\ reference", "1", "2", "3", "sum")
    assert rows == [("1 <b>", 3, 1, ".", 4), ("2 water", ".", 3, ".", 3), ("3 unknown", ".", 1, ".", 1)]
    value, note = headline(summary)
    assert value == "80.0 %" and "70.0 to 90.0; 87.5 % where the map is not unknown" in note


def test_a_page_without_outside_parts(summary: dict[str, Any], tmp_path: Path) -> None:
    page = write_assessment(summary, tmp_path / "map.gpkg", command="mgcap map")[0].read_text()
    assert not re.search(r"""(src|href)=["'](?!data:)""", page)
    assert "&lt;truth&gt;" in page and "One &lt;note&gt;." in page and "<b>" not in page
    rows = re.findall(r'<tr><th scope="row">(.*?)</th>(.*?)</tr>', page)
    assert [name for name, _ in rows] == ["&lt;b&gt;", "water", "unknown", "sum"]
    assert re.findall(r">(\d*)</td>", rows[-1][1]) == ["3", "5", "0", "8"]
    assert page.count("data:image/png") == 1
    summary["stratified"] = None
    assert "data:image" not in write_assessment(summary, tmp_path / "map.gpkg")[0].read_text()


def test_the_chart_has_the_largest_on_top(summary: dict[str, Any]) -> None:
    (axes,) = area_chart(summary).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["water", "<b>", "unknown"]
    assert [bar.get_width() for bar in axes.patches] == [3, 5, 2]
