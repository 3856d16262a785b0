"""``mgcap evaluate``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from mgcap.cli import completion as c
from mgcap.cli import options as o
from mgcap.cli.console import bars, check_writable, guarded, show_table, words
from mgcap.cli.signature import expanded
from mgcap.errors import DataError
from mgcap.persistence.files import write_json


@guarded
@expanded
def evaluate(
    scenes: o.Data,
    options: o.TrainingOptions,
    out: Annotated[Path, typer.Option(help="Folder for runs, tables and the report.")] = Path("evaluation"),
    model: Annotated[
        Path | None,
        typer.Option(
            help="Test this saved model on all of the images instead, as model.mgcap.", autocompletion=c.models
        ),
    ] = None,
    train_ratio: o.TrainRatio = 0.8,
    shots: Annotated[
        str | None, typer.Option(help="Few-shot: numbers of training images per class, as 1,5,10,20, each a study.")
    ] = None,
    runs: o.Runs = 10,
    splits: o.Splits = None,
    json_file: o.Json = None,
) -> None:
    """Accuracy over seeded, stratified splits, as papers report it; or of a saved model on a folder.

    A study that was killed is resumed when the same command is given again.

    Example: mgcap evaluate scenes/ --train-ratio 0.8 --runs 10 --out evaluation
    """
    from mgcap.data.folders import open_folder
    from mgcap.evaluation.finetuned import FinetunedStudy
    from mgcap.evaluation.protocol import Study
    from mgcap.report import evaluation_report, few_shot_report

    check_writable(out / "summary.json")
    if model is not None:
        _finish(_test_model(model, scenes, out, options), json_file, out)
        return
    counts = None if shots is None else _counts(shots)
    classifier = options.classifier()
    folder = open_folder(scenes, progress=bars)
    setup, configs = classifier.setup(), {"run": classifier.configuration(len(folder.classes))}
    words.print(f"{len(folder)} images of {len(folder.classes)} classes in {folder.root}", markup=False)
    tuned, command = setup.finetune is not None, o.command_line()
    kind = FinetunedStudy if tuned else Study
    if counts is None:
        study = kind(setup, folder, o.make_splits(folder, splits, float(train_ratio), runs, options.seed), configs, out)
        (summary,) = study.run().values()
        for _, error in study.skipped:
            words.print(f"skipped: {error}", markup=False)
        evaluation_report(summary, folder, out, wrong=study.wrong("run"), finetuned=tuned, command=command)
        _finish(summary, json_file, out)
        return
    few: dict[str, Any] = {}
    for count in counts:
        parts = o.make_splits(folder, None, count, runs, options.seed)
        (few[str(count)],) = kind(setup, folder, parts, configs, out / f"shots-{count}").run().values()
        words.print(f"{count} per class: {_headline(few[str(count)])}")
    report = {"shots": {count: {key: s[key] for key in ("mean", "std", "runs")} for count, s in few.items()}}
    write_json(out / "summary.json", report)
    few_shot_report(few, folder, out, command=command)
    words.print(f"results: {out}", markup=False)
    o.write_json(json_file, report)
    if json_file != "-":
        rows = [(count, _headline(summary).removesuffix(" %")) for count, summary in few.items()]
        show_table(("training images per class", "accuracy, %"), rows)


def _counts(shots: str) -> list[int]:
    try:
        counts = [int(part) for part in shots.split(",")]
    except ValueError:
        counts = []
    if not counts or min(counts) < 1:
        raise DataError(f"--shots takes numbers of training images per class such as 1,5,10,20, not '{shots}'")
    return counts


def _headline(summary: dict[str, Any]) -> str:
    from mgcap.report.page import spread

    return f"{spread(summary['mean'], summary['std'], '+-')} %"


def _finish(summary: dict[str, Any], json_file: str | None, out: Path) -> None:
    means = summary["means"]
    runs = f"{len(summary['runs'])} runs of {summary['test_images']} test images"
    words.print(f"accuracy {_headline(summary)} ({runs})")
    words.print(
        f"macro F1 {means['macro_f1']:.2f} %, kappa {means['kappa']:.4f}, calibration error {means['ece']:.2f} %"
        + (f" ({means['ece_calibrated']:.2f} % with the temperature)" if means["ece_calibrated"] is not None else "")
    )
    words.print(f"results: {out}", markup=False)
    o.write_json(json_file, summary)
    if json_file != "-":
        show_table(
            ("class", "accuracy, %"), [(name, f"{value:.2f}") for name, value in summary["per_class_accuracy"].items()]
        )


def _test_model(path: Path, scenes: Path, out: Path, options: o.TrainingOptions) -> dict[str, Any]:
    from mgcap.classifier import SceneClassifier
    from mgcap.data.folders import open_folder
    from mgcap.evaluation.summary import evaluate_model
    from mgcap.report import model_report

    o.run_added(options.add)
    classifier = SceneClassifier.load(path, options.device, options.engine, bars, options.cache)
    folder = open_folder(scenes, minimum_classes=1, progress=bars)
    summary = evaluate_model(classifier, folder, lambda i, error: bars.say(f"skipped: {error}"))
    write_json(out / "summary.json", summary)
    model_report(summary, folder, out, model=path.name, command=o.command_line())
    return summary
