"""``mgcap ablate``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from mgcap.cli import completion as c
from mgcap.cli import options as o
from mgcap.cli.console import bars, check_writable, data, guarded, show_table, words
from mgcap.cli.signature import expanded
from mgcap.errors import DataError


@dataclass(frozen=True)
class FullOptions(o.TrainingOptions):
    """Options that begin with the paper's views, so that there is something to leave out."""

    def values(self) -> dict[str, Any]:
        """The model values that were given, and three granularities and twelve rotations where none were."""
        return {"granularities": (1.0, 0.9, 0.8), "rotations": 12, **super().values()}


@guarded
@expanded
def ablate(
    scenes: o.Data,
    options: FullOptions,
    out: Annotated[Path, typer.Option(help="Folder for runs, tables and plots.")] = Path("ablation"),
    studies: Annotated[
        str | None,
        typer.Option(
            help="The studies to do, as granularities,rotations,normalisation; default: all of them.",
            autocompletion=c.several_of(c.STUDIES),
        ),
    ] = None,
    train_ratio: o.TrainRatio = 0.8,
    runs: o.Runs = 10,
    splits: o.Splits = None,
    json_file: o.Json = None,
) -> None:
    """The paper's ablation studies, and more, from one extraction of the features.

    They begin with the granularities 1.0,0.9,0.8 and 12 rotations, unless others are given. A study that was killed is
    resumed when the same command is given again.

    Example: mgcap ablate scenes/ --runs 3 --studies granularities,rotations
    """
    from mgcap.data.folders import open_folder
    from mgcap.evaluation.ablation import ablation_studies, distinct_settings
    from mgcap.evaluation.finetuned import FinetunedStudy
    from mgcap.evaluation.protocol import Study
    from mgcap.report import ablation_report, ablation_tables
    from mgcap.report.page import spread

    check_writable(out / "summary.json")
    classifier = options.classifier()
    setup, folder = classifier.setup(), open_folder(scenes, progress=bars)
    tuned = setup.finetune is not None
    try:
        chosen = ablation_studies(
            classifier.configuration(len(folder.classes)), studies.split(",") if studies else None, tuned
        )
    except ValueError as wrong:
        raise DataError(str(wrong)) from wrong
    distinct, where = distinct_settings(chosen)
    count = f"{len(folder)} images of {len(folder.classes)} classes in {folder.root}, {len(distinct)} settings"
    words.print(count, markup=False)
    parts = o.make_splits(folder, splits, float(train_ratio), runs, options.seed)
    study = (FinetunedStudy if tuned else Study)(setup, folder, parts, distinct, out)
    summaries = study.run()
    for _, error in study.skipped:
        words.print(f"skipped: {error}", markup=False)
    ablation_report(chosen, where, summaries, folder, out, finetuned=tuned, command=o.command_line())
    words.print(f"tables, plots and report: {out}", markup=False)
    tables = ablation_tables(chosen, where, summaries)
    o.write_json(json_file, tables)
    if json_file != "-":
        for name, rows in tables.items():
            data.print(chosen[name][0], markup=False)
            cells = [(row["setting"], spread(row["mean"], row["std"], "+-"), row["runs"]) for row in rows]
            show_table(("setting", "accuracy, %", "runs"), cells)
