"""``mgcap train``."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mgcap.cli import options as o
from mgcap.cli.console import bars, check_writable, guarded, quiet_unless_first
from mgcap.errors import DataError
from mgcap.persistence.files import atomic_path

if TYPE_CHECKING:
    from mgcap.classifier import SceneClassifier
    from mgcap.data.folders import SceneFolder
    from mgcap.data.splits import Split

_TUNING = "Fine-tuning"


@guarded
def train(
    context: typer.Context,
    data: o.Data,
    out: Annotated[Path, typer.Option(help="Where to write the model.")] = Path("model.mgcap"),
    preset: o.Preset = "compact",
    backbone: o.Backbone = None,
    granularities: o.Granularities = None,
    rotations: o.Rotations = None,
    normalisation: o.Normalisation = None,
    settings: o.Settings = None,
    weights: o.Weights = "imagenet",
    descriptor: o.Descriptor = "universal",
    train_ratio: Annotated[
        float | None, typer.Option(help="Train on this part of each class and test on the rest; default: train on all.")
    ] = None,
    train_count: Annotated[int | None, typer.Option(help="The same by number of training images per class.")] = None,
    split: Annotated[Path | None, typer.Option(help="A CSV with the columns path, label, side.")] = None,
    regularisation: o.Regularisation = "auto",
    seed: o.Seed = 0,
    engine: o.Engine = "auto",
    device: o.Device = "auto",
    cache: o.Cache = True,
    resolution: o.Resolution = None,
    finetune: Annotated[
        bool, typer.Option("--finetune", help="Train the backbone too.", rich_help_panel=_TUNING)
    ] = False,
    epochs: Annotated[int | None, typer.Option(help="Epochs over everything (9).", rich_help_panel=_TUNING)] = None,
    batch: Annotated[int | None, typer.Option(help="Images in a step (12).", rich_help_panel=_TUNING)] = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate (0.001).", rich_help_panel=_TUNING)] = None,
    optimiser: Annotated[str | None, typer.Option(help="sgd, adam or adamw.", rich_help_panel=_TUNING)] = None,
    schedule: Annotated[
        str | None, typer.Option(help="step (x 0.15 every 3 epochs), cosine or constant.", rich_help_panel=_TUNING)
    ] = None,
    train_from: Annotated[
        str | None, typer.Option(help="First layer to train, as conv5_1 or stage4; or all.", rich_help_panel=_TUNING)
    ] = None,
    copies: Annotated[
        int | None,
        typer.Option(
            help="Keep what the frozen layers give for so many augmented copies of each image.", rich_help_panel=_TUNING
        ),
    ] = None,
    head: Annotated[
        str | None, typer.Option(help="First stage: sgd (the paper's) or exact.", rich_help_panel=_TUNING)
    ] = None,
    head_epochs: Annotated[int | None, typer.Option(help="Epochs of its sgd (60).", rich_help_panel=_TUNING)] = None,
    label_smoothing: Annotated[float | None, typer.Option(help="As 0.1.", rich_help_panel=_TUNING)] = None,
    class_weights: Annotated[
        str | None, typer.Option(help="none, auto, or a CSV with the columns class, weight.", rich_help_panel=_TUNING)
    ] = None,
    vertical_flip: Annotated[
        bool | None, typer.Option("--vertical-flip", help="Mirror top and bottom too.", rich_help_panel=_TUNING)
    ] = None,
    random_angle: Annotated[
        float | None, typer.Option(help="Turn this share of the images by any angle.", rich_help_panel=_TUNING)
    ] = None,
    validation: Annotated[
        float | None, typer.Option(help="Part of the training images to watch.", rich_help_panel=_TUNING)
    ] = None,
    patience: Annotated[
        int | None, typer.Option(help="Stop after so many epochs without a better one.", rich_help_panel=_TUNING)
    ] = None,
    ema: Annotated[float | None, typer.Option(help="Average the weights, as 0.99.", rich_help_panel=_TUNING)] = None,
    precision: Annotated[str | None, typer.Option(help="32 or bf16.", rich_help_panel=_TUNING)] = None,
    chunk: Annotated[
        int | None, typer.Option(help="Views with a graph at once; less takes less memory.", rich_help_panel=_TUNING)
    ] = None,
    tune: Annotated[
        list[str] | None, typer.Option(help="Any other value, as momentum=0.8.", rich_help_panel=_TUNING)
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on after a kill.", rich_help_panel=_TUNING)] = False,
) -> None:
    """Train a model on a folder of scenes: the head on a frozen backbone, or with --finetune everything.

    Example: mgcap train scenes/ --train-ratio 0.8 --out model.mgcap

    Several processes: python -m torch.distributed.run --nproc-per-node 2 -m mgcap train scenes/ --finetune
    """
    from mgcap.data.folders import content_hashes, open_folder
    from mgcap.data.splits import Split, make_split, read_split
    from mgcap.training.checkpoint import FILE
    from mgcap.training.distributed import processes, rank, restarted

    quiet_unless_first()
    if sum(value is not None for value in (train_ratio, train_count, split)) > 1:
        raise DataError("give only one of --train-ratio, --train-count and --split")
    recipe = o.recipe(context.params)
    if recipe is None and processes() > 1:
        raise DataError("several processes are for --finetune; without it, start one")
    model = o.classifier(context)
    model.set_params(finetune=recipe)
    out = check_writable(out)
    folder = open_folder(data)
    bars.say(f"{len(folder)} images of {len(folder.classes)} classes in {folder.root}")
    sides = Split(tuple(range(len(folder))), ())
    if split is not None:
        sides = read_split(split, folder)
    elif train_ratio is not None or train_count is not None:
        part = train_count if train_ratio is None else float(train_ratio)
        with bars("Looking for copies", len(folder)) as step:
            marks = content_hashes(folder.paths, lambda: step(1))
        sides = make_split(folder.targets, part or 0, seed, marks, folder.classes)
    training = folder.subset(sides.train)
    run = out.with_suffix(".training")
    resume = resume or restarted()
    if recipe is not None and not resume and rank() == 0:
        _put_aside(run)
    model.fit(training.paths, training.labels, folder=run if recipe else None, resume=resume)
    if rank():
        return
    bars.say(f"engine: {model.engine_.name}")
    for _, error in model.skipped_:
        bars.say(f"passed over: {error}")
    model.provenance_["data"] = {"root": folder.root.name, "images": len(folder), "classes": len(folder.classes)}
    summary = _test(model, folder, sides, out) if sides.test else None
    if summary is None and model.cv_accuracy_ is not None:
        bars.say(f"cross-validated accuracy of the head on the training images: {100 * model.cv_accuracy_:.2f} %")
    with atomic_path(out) as temporary:
        model.save(temporary)
        if out.exists():
            previous = out.with_name(f"{out.stem}.previous{out.suffix}")
            out.replace(previous)
            bars.say(f"the model that was there is now {previous}")
    bars.say(f"model: {out}")
    if summary is not None or recipe is not None:
        _report(model, folder, summary, out, run)
    (run / FILE).unlink(missing_ok=True)


def _put_aside(run: Path) -> None:
    """Keep the logs of a finished run under another name."""
    from mgcap.training.checkpoint import FILE

    if (run / "steps.csv").exists() and not (run / FILE).exists():
        previous = run.with_suffix(".training.previous")
        shutil.rmtree(previous, ignore_errors=True)
        run.replace(previous)


def _test(model: SceneClassifier, folder: SceneFolder, sides: Split, out: Path) -> dict[str, Any]:
    from mgcap.data.splits import write_split
    from mgcap.evaluation.summary import evaluate_model

    testing = folder.subset(sides.test)
    summary = evaluate_model(model, testing, lambda i, error: bars.say(f"passed over: {error}"))
    model.metrics_ |= {"test_accuracy": summary["mean"] / 100, "test_images": summary["test_images"]}
    file = out.with_suffix(".split.csv")
    write_split(file, folder, sides)
    model.provenance_["split"] = file.name
    bars.say(f"accuracy on {summary['test_images']} held-out images: {summary['mean']:.2f} %")
    bars.say(f"split: {file}")
    return summary


def _report(model: SceneClassifier, folder: SceneFolder, summary: dict[str, Any] | None, out: Path, run: Path) -> None:
    from mgcap.report.charts import course_charts
    from mgcap.report.page import chart, in_words, write_page
    from mgcap.report.published import published_table

    config = model.model_.config.model_dump(mode="json")
    images = model.provenance_["images"]
    charts, tables = [], []
    if summary is not None:
        method = f"MG-CAP here, {'fine-tuned' if model.history_ else 'frozen'}, one split: {in_words(config)}"
        own = {"method": method, "mean": summary["mean"], "std": None}
        published = published_table(summary["classes"], images / (images + summary["test_images"]), [own])
        tables += [published] if published else []
    if model.history_ is not None:
        epochs = model.history_.epochs
        charts = [chart(file.stem, file) for file in course_charts(model.history_.steps, epochs, run)]
        tables.append(
            {
                "title": "Each epoch",
                "columns": [name.replace("_", " ") + (", %" if "accuracy" in name else "") for name in epochs[0]],
                "rows": [[_figure(*cell) for cell in row.items()] for row in epochs],
            }
        )
    page = out.with_suffix(".html")
    write_page(
        page,
        f"MG-CAP {'fine-tuned' if model.history_ else 'trained'} on {folder.root.name}",
        f"{in_words(config)}; {config['num_classes']} classes, {images} training images; engine {model.engine_.name}",
        o.command_line(),
        {"configuration": config, "provenance": model.provenance_},
        headline=f"{summary['mean']:.2f} %" if summary else "",
        headline_note=_interval(summary) if summary else "",
        tables=tables,
        charts=charts,
        summary=summary,
        wrong=summary["wrong"] if summary else (),
        root=folder.root,
    )
    bars.say(f"report: {page}")


def _figure(name: str, value: float) -> str:
    if name == "epoch":
        return str(int(value) + 1)
    return f"{100 * value:.2f}" if "accuracy" in name else f"{value:.4f}"


def _interval(summary: dict[str, Any]) -> str:
    from mgcap.evaluation.metrics import wilson_interval

    low, high = wilson_interval(summary["mean"] / 100, summary["test_images"])
    words = f"accuracy on {summary['test_images']} test images of this one split"
    return f"{words}; 95 % confidence interval {100 * low:.1f} to {100 * high:.1f}"
