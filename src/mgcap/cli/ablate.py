"""``mgcap ablate``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from mgcap.cli import options as o
from mgcap.cli.console import check_writable, data, guarded, words
from mgcap.errors import DataError
from mgcap.persistence.files import write_rows


@guarded
def ablate(
    context: typer.Context,
    scenes: o.Data,
    out: Annotated[Path, typer.Option(help="Folder for runs, tables and plots.")] = Path("ablation"),
    studies: Annotated[
        str | None, typer.Option(help="Which, as granularities,rotations,normalisation; all by default.")
    ] = None,
    train_ratio: Annotated[float, typer.Option(help="Training part of each class.")] = 0.8,
    runs: Annotated[int, typer.Option(min=1, max=1000, help="Number of seeded splits.")] = 10,
    splits: o.Splits = None,
    preset: o.Preset = "compact",
    backbone: o.Backbone = None,
    granularities: o.Granularities = "1.0,0.9,0.8",
    rotations: o.Rotations = 12,
    normalisation: o.Normalisation = None,
    settings: o.Settings = None,
    weights: o.Weights = "imagenet",
    descriptor: o.Descriptor = "universal",
    regularisation: o.Regularisation = "auto",
    seed: o.Seed = 0,
    engine: o.Engine = "auto",
    device: o.Device = "auto",
    finetune: o.Finetuned = False,
    tune: o.Tune = None,
    json_file: o.Json = None,
) -> None:
    """The paper's ablation studies, and more, from one extraction of the features.

    A killed study goes on where it stopped when the same command is given again.

    Example: mgcap ablate scenes/ --runs 3 --studies granularities,rotations
    """
    from mgcap.data.folders import open_folder
    from mgcap.evaluation.ablation import ablation_studies, distinct_settings
    from mgcap.evaluation.finetuned import FinetunedStudy
    from mgcap.evaluation.protocol import Study
    from mgcap.report.charts import ablation_chart
    from mgcap.report.page import chart, in_words, write_page
    from mgcap.report.published import published_table

    check_writable(out / "summary.json")
    classifier = o.classifier(context)
    classifier.set_params(finetune=o.recipe(context.params))
    folder = open_folder(scenes)
    try:
        chosen = ablation_studies(
            classifier.configuration(len(folder.classes)), studies.split(",") if studies else None, finetune
        )
    except ValueError as wrong:
        raise DataError(str(wrong)) from wrong
    distinct, where = distinct_settings(chosen)
    words.print(f"{len(folder)} images of {len(folder.classes)} classes in {folder.root}, {len(distinct)} settings")
    kind = FinetunedStudy if finetune else Study
    parts = o.make_splits(folder, splits, float(train_ratio), runs, seed)
    study = kind(classifier.setup(), folder, parts, distinct, out)
    summaries = study.run()
    for _, error in study.skipped:
        words.print(f"passed over: {error}", markup=False)
    tables: dict[str, Any] = {}
    for name, (title, labels) in chosen.items():
        rows = [{"setting": label, **_figures(summaries[where[name, label]])} for label in labels]
        tables[name] = rows
        write_rows(out / f"{name}.csv", rows)
        ablation_chart(title, rows, out / f"{name}.png")
        if json_file != "-":
            data.print(title)
            for row in rows:
                spread = "" if row["std"] is None else f" +- {row['std']:.2f}"
                data.print(f"  {row['setting']:>10}  {row['mean']:.2f}{spread}", markup=False)
    first = next(iter(summaries.values()))
    ratio = first["train_images"] / (first["train_images"] + first["test_images"])
    how = "fine-tuned" if finetune else "frozen"
    own = [
        {"method": f"MG-CAP here, {how}: {in_words(summary['configuration'])}", **_figures(summary)}
        for name in (where["normalisation", label] for label in chosen.get("normalisation", ("", {}))[1])
        if (summary := summaries[name])
    ]
    published = published_table(folder.classes, ratio, own) if own else None
    write_page(
        out / "report.html",
        f"Ablations of MG-CAP on {folder.root.name}",
        f"{len(folder)} images of {len(folder.classes)} classes, {len(study.splits)} runs each",
        o.command_line(),
        {"configuration": study.network.model_dump(mode="json")},
        tables=[
            {
                "title": chosen[name][0],
                "columns": ("setting", "accuracy, %", "standard deviation"),
                "rows": [
                    (r["setting"], f"{r['mean']:.2f}", "-" if r["std"] is None else f"{r['std']:.2f}") for r in rows
                ],
            }
            for name, rows in tables.items()
        ]
        + ([published] if published else []),
        charts=[chart(chosen[name][0], out / f"{name}.png") for name in tables],
    )
    words.print(f"tables, plots and report: {out}")
    o.write_json(json_file, tables)


def _figures(summary: dict[str, Any]) -> dict[str, Any]:
    return {
        "mean": summary["mean"],
        "std": summary["std"],
        "cross_validated_mean": summary["means"]["cross_validated_accuracy"],
        "runs": len(summary["runs"]),
    }
