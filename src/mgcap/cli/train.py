"""``mgcap train``."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mgcap.cli import options as o
from mgcap.cli.console import bars, check_writable, guarded, quiet_unless_first
from mgcap.cli.saving import save_model
from mgcap.cli.signature import expanded
from mgcap.cli.teach import LabelOptions, check_alone, teach_model
from mgcap.errors import DataError

if TYPE_CHECKING:
    from mgcap.classifier import SceneClassifier
    from mgcap.data.folders import SceneFolder
    from mgcap.data.splits import Split


@guarded
@expanded
def train(
    options: o.TrainingOptions,
    labels: LabelOptions,
    data: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="DATA",
            help=f"{o.DATA[:-1]}; with --labels the rasters that these lie on.",
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="The file to write the model to.")] = Path("model.mgcap"),
    train_ratio: Annotated[
        float | None,
        typer.Option(help="Train on this share of each class, as 0.8, and test on the rest; default: train on all."),
    ] = None,
    train_count: Annotated[
        int | None, typer.Option(help="Train on this number of images of each class, as 20, and test on the rest.")
    ] = None,
    split: Annotated[
        Path | None,
        typer.Option(
            help="Train and test by a CSV with the columns path, label, subset, as model.split.csv; with --labels "
            "blocks of land are held out anyway."
        ),
    ] = None,
    resolution: o.Resolution = None,
    composed: Annotated[
        int,
        typer.Option(
            help="Learn also from about this number of windows of scenes composed of the training images, as 6000: "
            "not centred and of several classes at once, as the cells of a map are.",
            min=0,
            max=100_000,
        ),
    ] = 0,
    resume: Annotated[
        bool, typer.Option("--resume", help="Resume the fine-tuning that was stopped, from its checkpoint.")
    ] = False,
) -> None:
    """Train a model on a folder of scenes: the head on a frozen backbone, or with --finetune everything.

    Example: mgcap train scenes/ --train-ratio 0.8 --out model.mgcap

    Your own classes on your own raster: mgcap train scene.tif --labels labels.gpkg --field class --out model.mgcap

    More classes for a model: mgcap train scene.tif --extend model.mgcap --labels more.gpkg --out larger.mgcap

    Fine-tuning: mgcap train scenes/ --finetune --tune epochs=5 --tune lr=0.003 (all values: mgcap config list)

    Several processes: python -m torch.distributed.run --nproc-per-node 2 -m mgcap train scenes/ --finetune
    """
    check_alone(labels)
    if labels.wanted:
        other = None if str(split) == "blocks" else split  # which is what is done
        given = {"train_ratio": train_ratio, "train_count": train_count, "split": other, "composed": composed or None}
        _for_folders_only(options, given)
        teach_model(data or [], labels, out, options.device, options.engine)
        return
    if not data or len(data) > 1:
        raise DataError("give one folder of scenes, or rasters with --labels")
    from mgcap.data.folders import open_folder
    from mgcap.report import training_report
    from mgcap.training.checkpoint import FILE
    from mgcap.training.distributed import processes, rank, restarted

    quiet_unless_first()
    if sum(value is not None for value in (train_ratio, train_count, split)) > 1:
        raise DataError("give only one of --train-ratio, --train-count and --split")
    model = options.classifier(resolution=resolution, composed=composed)
    tuned = model.finetune is not None
    if resume and not tuned:
        raise DataError("--resume needs --finetune")
    if processes() > 1 and not tuned:
        raise DataError("several processes are for --finetune; without it, start one")
    out = check_writable(out)
    folder = open_folder(data[0], progress=bars)
    bars.say(f"{len(folder)} images of {len(folder.classes)} classes in {folder.root}")
    sides = _sides(folder, split, train_count if train_ratio is None else float(train_ratio), options.seed)
    training = folder.subset(sides.train)
    run = out.with_suffix(".training")
    resume = resume or restarted()
    if tuned and not resume and rank() == 0:
        _put_aside(run)
    model.fit(training.paths, training.labels, folder=run if tuned else None, resume=resume)
    if rank():
        return
    bars.say(f"the engine is {model.engine_.name}")
    for _, error in model.skipped_:
        bars.say(f"skipped: {error}")
    model.provenance_["data"] = {"root": folder.root.name, "images": len(folder), "classes": len(folder.classes)}
    summary = _test(model, folder, sides, out) if sides.test else None
    if summary is None and model.cv_accuracy_ is not None:
        bars.say(f"cross-validated accuracy of the head on the training images: {100 * model.cv_accuracy_:.2f} %")
    save_model(model, out)
    if summary is not None or tuned:
        page, command = out.with_suffix(".html"), o.command_line()
        bars.say(f"report: {training_report(model, folder, page, summary=summary, logs=run, command=command)}")
    (run / FILE).unlink(missing_ok=True)


def _for_folders_only(options: o.TrainingOptions, given: dict[str, Any]) -> None:
    """Refuse what has no meaning for labels on rasters, whose network is that of another model."""
    plain = o.TrainingOptions()
    names = ("preset", "backbone", "granularities", "rotations", "normalisation", "settings", "weights", "descriptor")
    wrong = [name for name in (*names, "regularisation", "finetune", "tune") if
             getattr(options, name) != getattr(plain, name)]  # fmt: skip
    wrong += [name for name, value in given.items() if value is not None]
    if wrong:
        flag = "set" if wrong[0] == "settings" else wrong[0].replace("_", "-")
        raise DataError(f"--{flag} is for folders of scenes; labels on rasters take the network of --base")


def _sides(folder: SceneFolder, file: Path | None, part: float | int | None, seed: int) -> Split:
    """Training and test images; all are for training if nothing else was asked for."""
    from mgcap.data.splits import Split

    if file is None and part is None:
        return Split(tuple(range(len(folder))), ())
    (split,) = o.make_splits(folder, [file] if file else None, part or 0, 1, seed)
    return split


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
    summary = evaluate_model(model, testing, lambda i, error: bars.say(f"skipped: {error}"))
    model.metrics_ |= {"test_accuracy": summary["mean"] / 100, "test_images": summary["test_images"]}
    file = out.with_suffix(".split.csv")
    write_split(file, folder, sides)
    model.provenance_["split"] = file.name
    bars.say(f"accuracy on {summary['test_images']} held-out images: {summary['mean']:.2f} %")
    bars.say(f"split: {file}")
    return summary
