"""The page of ``mgcap train``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mgcap.data.folders import SceneFolder
from mgcap.evaluation.metrics import wilson_interval
from mgcap.report.charts import history_charts
from mgcap.report.page import Page, chart, in_words
from mgcap.report.published import published_table

if TYPE_CHECKING:
    from mgcap.classifier import SceneClassifier


def training_report(
    model: SceneClassifier,
    folder: SceneFolder,
    page: Path,
    *,
    summary: Mapping[str, Any] | None = None,
    logs: Path | None = None,
    command: str = "",
) -> Path:
    """Write the page of a trained model.

    Args:
        model: Fitted.
        folder: The images, those of training and test together.
        page: The HTML file.
        summary: Of the test images, if there are some, see :func:`mgcap.evaluation.summary.evaluate_model`.
        logs: The folder for the curves of fine-tuning; beside the page by default.
        command: How to repeat it.
    """
    config = model.model_.config.model_dump(mode="json")
    images, history = model.provenance_["images"], model.history_
    charts, tables = [], []
    if summary is not None:
        method = f"MG-CAP here, {'fine-tuned' if history else 'frozen'}, one split: {in_words(config)}"
        own = {"method": method, "mean": summary["mean"], "std": None}
        published = published_table(summary["classes"], images / (images + summary["test_images"]), [own])
        tables += [published] if published else []
    if history is not None:
        files = history_charts(history.steps, history.epochs, logs or page.parent)
        charts = [chart(file.stem, file) for file in files]
        columns = [name.replace("_", " ") + (", %" if "accuracy" in name else "") for name in history.epochs[0]]
        rows = [[_figure(*cell) for cell in row.items()] for row in history.epochs]
        tables.append({"title": "Each epoch", "columns": columns, "rows": rows})
    Page(
        f"MG-CAP {'fine-tuned' if history else 'trained'} on {folder.root.name}",
        f"{in_words(config)}; {config['num_classes']} classes, {images} training images; engine {model.engine_.name}",
        command,
        {"configuration": config, "provenance": model.provenance_},
        headline=f"{summary['mean']:.2f} %" if summary else "",
        headline_note=_interval(summary) if summary else "",
        tables=tables,
        charts=charts,
        summary=summary,
        wrong=summary["wrong"] if summary else (),
        root=folder.root,
    ).write(page)
    return page


def _figure(name: str, value: float) -> str:
    if name == "epoch":
        return str(int(value) + 1)
    return f"{100 * value:.2f}" if "accuracy" in name else f"{value:.4f}"


def _interval(summary: Mapping[str, Any]) -> str:
    low, high = wilson_interval(summary["mean"] / 100, summary["test_images"])
    words = f"accuracy on {summary['test_images']} test images of this one split"
    return f"{words}; 95 % confidence interval {100 * low:.1f} to {100 * high:.1f}"
