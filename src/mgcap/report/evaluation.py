"""The pages of ``mgcap evaluate``: a study, few shots, and a saved model on a folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mgcap.data.folders import SceneFolder
from mgcap.report.charts import ablation_chart
from mgcap.report.page import Page, chart, in_words, spread
from mgcap.report.published import published_table

#: What :mod:`mgcap.evaluation.summary` makes of runs.
Summary = Mapping[str, Any]

_LABELS = {
    "accuracy": "accuracy, %",
    "macro_f1": "macro F1, %",
    "kappa": "kappa",
    "ece": "calibration error, %",
    "ece_calibrated": "calibration error with the temperature, %",
    "loss": "cross-entropy",
    "cross_validated_accuracy": "cross-validated accuracy on training images, %",
}


def evaluation_report(
    summary: Summary,
    folder: SceneFolder,
    out: Path,
    *,
    wrong: Sequence[dict[str, Any]] = (),
    finetuned: bool = False,
    command: str = "",
) -> Path:
    """Write ``report.html`` of a configuration on several splits.

    Args:
        summary: Of all runs together, see :meth:`mgcap.evaluation.protocol.Study.run`.
        folder: The images.
        out: The folder for the page.
        wrong: The mistakes of all runs, see :meth:`mgcap.evaluation.protocol.Study.wrong`.
        finetuned: Whether the network was fine-tuned in every run.
        command: How to repeat it.
    """
    config, runs = summary["configuration"], summary["runs"]
    train, test = summary["train_images"], summary["test_images"]
    means = [(label, summary["means"][name], summary["stds"][name]) for name, label in _LABELS.items()]
    method = f"MG-CAP here, {'fine-tuned' if finetuned else 'frozen'}: {in_words(config)}"
    own = {"method": method, "mean": summary["mean"], "std": summary["std"]}
    published = published_table(summary["classes"], train / (train + test), [own])
    page = out / "report.html"
    Page(
        f"Accuracy of MG-CAP on {folder.root.name}",
        f"{in_words(config)}; {len(summary['classes'])} classes, {train} training and {test} test images a run; "
        f"engine {summary['engine']}",
        command,
        {"configuration": config, "versions": summary["versions"], "weights": summary["weights"]},
        headline=f"{spread(summary['mean'], summary['std'])} %",
        headline_note=f"mean and standard deviation of the test accuracy over {len(runs)} runs",
        tables=[
            *([published] if published else []),
            {
                "title": "All runs together",
                "columns": ("", "mean", "standard deviation"),
                "rows": [(name, _number(mean), _number(std)) for name, mean, std in means],
            },
            {
                "title": "Each run",
                "columns": ("run", "accuracy, %"),
                "rows": [(number, f"{accuracy:.2f}") for number, accuracy in enumerate(runs)],
            },
        ],
        summary=summary,
        wrong=wrong,
        root=folder.root,
    ).write(page)
    return page


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def few_shot_report(summaries: Mapping[str, Summary], folder: SceneFolder, out: Path, *, command: str = "") -> Path:
    """Write ``report.html`` and ``shots.png`` of studies with few training images.

    Args:
        summaries: By the number of training images per class.
        folder: The images.
        out: The folder for page and chart.
        command: How to repeat it.
    """
    rows = [{"setting": count, "mean": s["mean"], "std": s["std"]} for count, s in summaries.items()]
    ablation_chart("training images per class", rows, out / "shots.png")
    last = summaries[str(rows[-1]["setting"])]
    page = out / "report.html"
    Page(
        f"Few-shot accuracy of MG-CAP on {folder.root.name}",
        f"{in_words(last['configuration'])}; {len(last['classes'])} classes, {len(last['runs'])} seeded episodes each",
        command,
        {"configuration": last["configuration"], "versions": last["versions"]},
        tables=[
            {
                "title": "Accuracy on all other images",
                "columns": ("training images per class", "accuracy, %"),
                "rows": [(count, spread(s["mean"], s["std"])) for count, s in summaries.items()],
            }
        ],
        charts=[chart("accuracy by training images per class", out / "shots.png")],
    ).write(page)
    return page


def model_report(summary: Summary, folder: SceneFolder, out: Path, *, model: str = "model", command: str = "") -> Path:
    """Write ``report.html`` of a saved model on a folder.

    Args:
        summary: See :func:`mgcap.evaluation.summary.evaluate_model`.
        folder: The images.
        out: The folder for the page.
        model: What the model is called.
        command: How to repeat it.
    """
    page = out / "report.html"
    Page(
        f"{model} on {folder.root.name}",
        f"{in_words(summary['configuration'])}; engine {summary['engine']}",
        command,
        {"configuration": summary["configuration"], "versions": summary["versions"]},
        headline=f"{spread(summary['mean'], summary['std'])} %",
        headline_note=f"accuracy on {summary['test_images']} images",
        summary=summary,
        wrong=summary["wrong"],
        root=folder.root,
    ).write(page)
    return page
