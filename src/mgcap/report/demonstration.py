"""The page of ``mgcap demo``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mgcap.report.page import Page, chart, in_words

if TYPE_CHECKING:
    from mgcap.classifier import SceneClassifier
    from mgcap.geo.mapping import Mapped


def demo_report(
    model: SceneClassifier, scenes: Path, page: Path, *, mapped: Mapped | None = None, command: str = ""
) -> Path:
    """Write the page of a demonstration.

    Args:
        model: Fitted, with the summary of its test in ``metrics_["summary"]``.
        scenes: The folder of the drawn scenes.
        page: The HTML file.
        mapped: The map of a real scene, if there is one.
        command: How to repeat it.
    """
    summary, config = model.metrics_["summary"], model.model_.config.model_dump(mode="json")
    tables, charts = [], []
    if mapped is not None:
        order = [k for k in mapped.areas.argsort()[::-1] if mapped.areas[k] > 0]
        rows = [[mapped.names[k], f"{mapped.areas[k] / 10_000:.2f}"] for k in order]
        note = (
            "By another model, ucmerced, whose 21 classes are those of towns in the USA. Cells that are unlike all of "
            "its training images are unknown; some mixtures of trees, roads and scrub are called river, which is not "
            "there. The accuracy above is not of this model."
        )
        title = "Kitsap County: area of each class"
        tables = [{"title": title, "columns": ["class", "hectares"], "rows": rows, "note": note}]
        charts = [chart("Kitsap County by the model ucmerced", next(f for f in mapped.files if f.suffix == ".png"))]
    Page(
        "MG-CAP: a demonstration",
        f"{in_words(config)}; drawn scenes for training and test",
        command,
        {"configuration": config, "provenance": model.provenance_},
        headline=f"{summary['mean']:.2f} %",
        headline_note=f"accuracy on {summary['test_images']} drawn scenes that training did not see",
        tables=tables,
        charts=charts,
        summary=summary,
        wrong=summary["wrong"],
        root=scenes,
    ).write(page)
    return page
