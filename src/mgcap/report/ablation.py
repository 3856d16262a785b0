"""Tables, charts and page of ``mgcap ablate``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mgcap.data.folders import SceneFolder
from mgcap.persistence.files import write_rows
from mgcap.report.charts import ablation_chart
from mgcap.report.page import Page, chart, in_words, spread
from mgcap.report.published import published_table

if TYPE_CHECKING:
    from mgcap.evaluation.ablation import Studies

#: For each study a row for each setting.
Tables = dict[str, list[dict[str, Any]]]

Summary = Mapping[str, Any]


def ablation_tables(studies: Studies, where: Mapping[tuple[str, str], str], summaries: Mapping[str, Summary]) -> Tables:
    """For each study its settings with mean and standard deviation of the accuracy.

    Args:
        studies: See :func:`mgcap.evaluation.ablation.ablation_studies`.
        where: For each study and label the name of its summary.
        summaries: See :meth:`mgcap.evaluation.protocol.Study.run`.
    """
    return {
        name: [{"setting": label, **_figures(summaries[where[name, label]])} for label in labels]
        for name, (_, labels) in studies.items()
    }


def _figures(summary: Summary) -> dict[str, Any]:
    return {
        "mean": summary["mean"],
        "std": summary["std"],
        "cross_validated_mean": summary["means"]["cross_validated_accuracy"],
        "runs": len(summary["runs"]),
    }


def ablation_report(
    studies: Studies,
    where: Mapping[tuple[str, str], str],
    summaries: Mapping[str, Summary],
    folder: SceneFolder,
    out: Path,
    *,
    finetuned: bool = False,
    command: str = "",
) -> Path:
    """Write ``report.html``, and a table and a chart of each study.

    Args:
        studies: See :func:`ablation_tables`.
        where: The same.
        summaries: The same.
        folder: The images.
        out: The folder for all files.
        finetuned: Whether the network was fine-tuned in every run.
        command: How to repeat it.
    """
    tables = ablation_tables(studies, where, summaries)
    for name, rows in tables.items():
        write_rows(out / f"{name}.csv", rows)
        ablation_chart(studies[name][0], rows, out / f"{name}.png")
    shown = [
        {
            "title": studies[name][0],
            "columns": ("setting", "accuracy, %"),
            "rows": [(row["setting"], spread(row["mean"], row["std"])) for row in rows],
        }
        for name, rows in tables.items()
    ]
    first = next(iter(summaries.values()))
    ratio = first["train_images"] / (first["train_images"] + first["test_images"])
    own = [
        {
            "method": f"MG-CAP here, {'fine-tuned' if finetuned else 'frozen'}: {in_words(summary['configuration'])}",
            "mean": summary["mean"],
            "std": summary["std"],
        }
        for label in studies.get("normalisation", ("", {}))[1]
        if (summary := summaries[where["normalisation", label]])
    ]
    published = published_table(folder.classes, ratio, own) if own else None
    page = out / "report.html"
    Page(
        f"Ablations of MG-CAP on {folder.root.name}",
        f"{len(folder)} images of {len(folder.classes)} classes, {len(first['runs'])} runs each",
        command,
        {
            "configuration": first["configuration"],
            "settings": {name: in_words(summary["configuration"]) for name, summary in summaries.items()},
        },
        tables=[*shown, *([published] if published else [])],
        charts=[chart(studies[name][0], out / f"{name}.png") for name in tables],
    ).write(page)
    return page
