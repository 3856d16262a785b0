"""Table, chart and page of ``mgcap compare``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mgcap.data.folders import SceneFolder
from mgcap.data.splits import Split
from mgcap.persistence.files import write_json, write_rows
from mgcap.report.charts import cost_chart
from mgcap.report.page import Page, chart, spread
from mgcap.report.published import published_table

COLUMNS = ("method", "accuracy, %", "fit, s", "ms/image", "parameters", "memory, MiB", "p")

#: What :meth:`mgcap.baselines.comparison.Comparison.run` gives for a method.
Row = Mapping[str, Any]


def cells(row: Row, sign: str = "\N{PLUS-MINUS SIGN}") -> tuple[str, ...]:
    """What stands in the columns for a method."""
    if row["error"]:
        return (row["title"], f"failed: {row['error']}", *[""] * (len(COLUMNS) - 2))
    return (
        row["title"],
        spread(row["mean"], row["std"], sign),
        f"{row['fit_seconds']:.1f}",
        f"{row['predict_ms']:.1f}",
        f"{row['parameters']:,.0f}",
        f"{row['memory_mib']:.0f}",
        "" if row["p_value"] is None else f"{row['p_value']:.3f}",
    )


def comparison_report(
    rows: Sequence[Row],
    folder: SceneFolder,
    splits: Sequence[Split],
    out: Path,
    *,
    fingerprint: Mapping[str, Any] | None = None,
    command: str = "",
) -> Path:
    """Write ``methods.csv``, ``summary.json``, ``cost.png`` and ``report.html``.

    Args:
        rows: See :meth:`mgcap.baselines.comparison.Comparison.run`.
        folder: The images.
        splits: One for each run.
        out: The folder for all files.
        fingerprint: The fingerprint of the comparison.
        command: How to repeat it.
    """
    write_rows(out / "methods.csv", [{key: value for key, value in row.items() if key != "runs"} for row in rows])
    write_json(out / "summary.json", {"methods": rows})
    done = [dict(row) for row in rows if row["mean"] is not None]
    if done:
        cost_chart(done, out / "cost.png")
    train, test = len(splits[0].train), len(splits[0].test)
    own = [{"method": row["title"], "mean": row["mean"], "std": row["std"]} for row in done]
    published = published_table(folder.classes, train / (train + test), own) if own else None
    page = out / "report.html"
    Page(
        f"Methods compared on {folder.root.name}",
        f"{len(folder.classes)} classes, {train} training and {test} test images, "
        f"{len(splits)} run{'s' * (len(splits) > 1)} on the same splits",
        command,
        {"fingerprint": fingerprint, "methods": [row["name"] for row in rows]},
        headline=f"{done[0]['title']}: {done[0]['mean']:.2f} %" if done else "",
        headline_note="the best mean accuracy on test images" if done else "",
        tables=[
            {
                "title": "All methods",
                "columns": COLUMNS,
                "rows": [cells(row) for row in rows],
                "note": "p: how probable so large a difference from the first row would be if there were none (t-test "
                "for resampled splits). Fitting counts descriptors only where they were not in the cache.",
            },
            *([published] if published else []),
        ],
        charts=[chart("accuracy against cost", out / "cost.png")] if done else [],
    ).write(page)
    return page
