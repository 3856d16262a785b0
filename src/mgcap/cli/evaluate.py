"""``mgcap evaluate``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mgcap.cli import options as o
from mgcap.cli.console import bars, check_writable, data, guarded, words
from mgcap.errors import DataError
from mgcap.persistence.files import write_json

if TYPE_CHECKING:
    from mgcap.data.folders import SceneFolder
    from mgcap.evaluation.protocol import Study


@guarded
def evaluate(
    context: typer.Context,
    scenes: o.Data,
    out: Annotated[Path, typer.Option(help="Folder for runs, tables and the report.")] = Path("evaluation"),
    model: Annotated[Path | None, typer.Option(help="Test this saved model on all of the images instead.")] = None,
    train_ratio: Annotated[float, typer.Option(help="Training part of each class.")] = 0.8,
    shots: Annotated[
        str | None, typer.Option(help="Few-shot: so many training images per class, as 1,5,10,20, each a study.")
    ] = None,
    runs: Annotated[int, typer.Option(min=1, max=1000, help="Number of seeded splits.")] = 10,
    splits: o.Splits = None,
    preset: o.Preset = "compact",
    backbone: o.Backbone = None,
    granularities: o.Granularities = None,
    rotations: o.Rotations = None,
    normalisation: o.Normalisation = None,
    settings: o.Settings = None,
    weights: o.Weights = "imagenet",
    descriptor: o.Descriptor = "universal",
    regularisation: o.Regularisation = "auto",
    seed: o.Seed = 0,
    engine: o.Engine = "auto",
    device: o.Device = "auto",
    cache: o.Cache = True,
    finetune: o.Finetuned = False,
    tune: o.Tune = None,
    json_file: o.Json = None,
) -> None:
    """Accuracy over seeded, stratified splits, as papers report it; or of a saved model on a folder.

    A killed study goes on where it stopped when the same command is given again.

    Example: mgcap evaluate scenes/ --train-ratio 0.8 --runs 10 --out evaluation
    """
    from mgcap.data.folders import open_folder
    from mgcap.evaluation.finetuned import FinetunedStudy
    from mgcap.evaluation.protocol import Study

    check_writable(out / "summary.json")
    if model is not None:
        _finish(_test_model(model, scenes, out, engine, device), json_file, out)
        return
    classifier = o.classifier(context)
    classifier.set_params(finetune=o.recipe(context.params))
    folder = open_folder(scenes)
    setup, configs = classifier.setup(), {"run": classifier.configuration(len(folder.classes))}
    words.print(f"{len(folder)} images of {len(folder.classes)} classes in {folder.root}")
    kind = FinetunedStudy if finetune else Study
    if shots is None:
        study = kind(setup, folder, o.make_splits(folder, splits, float(train_ratio), runs, seed), configs, out)
        (summary,) = study.run().values()
        for _, error in study.skipped:
            words.print(f"passed over: {error}", markup=False)
        _report(study, summary, out)
        _finish(summary, json_file, out)
        return
    few: dict[str, Any] = {}
    for count in _counts(shots):
        parts = o.make_splits(folder, None, count, runs, seed)
        study = kind(setup, folder, parts, configs, out / f"shots-{count}")
        (few[str(count)],) = study.run().values()
        words.print(f"{count} per class: {_headline(few[str(count)])}")
    report = {"shots": {count: {key: s[key] for key in ("mean", "std", "runs")} for count, s in few.items()}}
    write_json(out / "summary.json", report)
    _few_shot_report(few, folder.root.name, out)
    words.print(f"results: {out}")
    o.write_json(json_file, report)


def _few_shot_report(few: dict[str, Any], name: str, out: Path) -> None:
    from mgcap.report.charts import ablation_chart
    from mgcap.report.page import chart, in_words, write_page

    rows = [{"setting": count, "mean": s["mean"], "std": s["std"]} for count, s in few.items()]
    ablation_chart("training images per class", rows, out / "shots.png")
    last = few[str(rows[-1]["setting"])]
    write_page(
        out / "report.html",
        f"Few-shot accuracy of MG-CAP on {name}",
        f"{in_words(last['configuration'])}; {len(last['classes'])} classes, {len(last['runs'])} seeded episodes each",
        o.command_line(),
        {"configuration": last["configuration"], "versions": last["versions"]},
        tables=[
            {
                "title": "Accuracy on all other images",
                "columns": ("training images per class", "accuracy, %"),
                "rows": [(count, _headline(s).removesuffix(" %")) for count, s in few.items()],
            }
        ],
        charts=[chart("accuracy by training images per class", out / "shots.png")],
    )


def _counts(shots: str) -> list[int]:
    try:
        counts = [int(part) for part in shots.split(",")]
    except ValueError:
        counts = []
    if not counts or min(counts) < 1:
        raise DataError(f"--shots takes numbers of training images per class such as 1,5,10,20, not '{shots}'")
    return counts


def _headline(summary: dict[str, Any]) -> str:
    spread = "" if summary["std"] is None else f" +- {summary['std']:.2f}"
    return f"{summary['mean']:.2f}{spread} %"


def _report(study: Study, summary: dict[str, Any], out: Path) -> None:
    from mgcap.report.page import in_words, write_page
    from mgcap.report.published import published_table

    rows = [
        (name.replace("_", " "), *(f"{v:.4g}" if v is not None else "-" for v in (summary["means"][name], spread)))
        for name, spread in summary["stds"].items()
    ]
    c = summary["configuration"]
    runs = [(number, f"{accuracy:.2f}") for number, accuracy in enumerate(summary["runs"])]
    ratio = summary["train_images"] / (summary["train_images"] + summary["test_images"])
    how = "frozen" if study.setup.finetune is None else "fine-tuned"
    own = {"method": f"MG-CAP here, {how}: {in_words(c)}", "mean": summary["mean"], "std": summary["std"]}
    published = published_table(summary["classes"], ratio, [own])
    write_page(
        out / "report.html",
        f"Accuracy of MG-CAP on {study.folder.root.name}",
        f"{in_words(c)}; {len(summary['classes'])} classes, {summary['train_images']} training and "
        f"{summary['test_images']} test images a run; engine {summary['engine']}",
        o.command_line(),
        {"configuration": c, "versions": summary["versions"], "weights": summary["weights"]},
        headline=_headline(summary).replace("+-", "\N{PLUS-MINUS SIGN}"),
        headline_note=f"mean and standard deviation of the test accuracy over {len(runs)} runs",
        tables=[
            *([published] if published else []),
            {"title": "All runs together", "columns": ("", "mean", "standard deviation"), "rows": rows},
            {"title": "Each run", "columns": ("run", "accuracy, %"), "rows": runs},
        ],
        summary=summary,
        wrong=study.wrong(next(iter(study.settings))),
        root=study.folder.root,
    )


def _finish(summary: dict[str, Any], json_file: str | None, out: Path) -> None:
    means = summary["means"]
    runs = f"{len(summary['runs'])} runs of {summary['test_images']} test images"
    words.print(f"accuracy {_headline(summary)} ({runs})")
    words.print(
        f"macro F1 {means['macro_f1']:.2f} %, kappa {means['kappa']:.4f}, calibration error {means['ece']:.2f} %"
        + (f" ({means['ece_calibrated']:.2f} % with the temperature)" if means["ece_calibrated"] is not None else "")
    )
    words.print(f"results: {out}")
    o.write_json(json_file, summary)
    if json_file != "-":
        for name, value in summary["per_class_accuracy"].items():
            data.print(f"{value:6.2f}  {name}", markup=False)


def _test_model(path: Path, scenes: Path, out: Path, engine: str, device: str) -> dict[str, Any]:
    from mgcap.classifier import SceneClassifier
    from mgcap.data.folders import open_folder
    from mgcap.evaluation.summary import evaluate_model

    classifier = SceneClassifier.load(path, device, engine, bars)
    skipped: list[str] = []
    folder = open_folder(scenes, minimum_classes=1)
    summary = evaluate_model(classifier, folder, lambda i, e: skipped.append(str(e)))
    for line in skipped:
        words.print(f"passed over: {line}", markup=False)
    write_json(out / "summary.json", summary)
    _model_report(summary, folder, path, out)
    return summary


def _model_report(summary: dict[str, Any], folder: SceneFolder, model: Path, out: Path) -> None:
    from mgcap.report.page import in_words, write_page

    write_page(
        out / "report.html",
        f"{model.name} on {folder.root.name}",
        f"{in_words(summary['configuration'])}; engine {summary['engine']}",
        o.command_line(),
        {"configuration": summary["configuration"], "versions": summary["versions"]},
        headline=_headline(summary),
        headline_note=f"accuracy on {summary['test_images']} images",
        summary=summary,
        wrong=summary["wrong"],
        root=folder.root,
    )
