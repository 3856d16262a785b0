"""``mgcap train``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mgcap.assets import atomic_path
from mgcap.cli import options as o
from mgcap.cli.console import bars, check_writable, guarded, words
from mgcap.errors import DataError

if TYPE_CHECKING:
    from mgcap.classifier import SceneClassifier
    from mgcap.data.folders import SceneFolder
    from mgcap.data.splits import Split


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
) -> None:
    """Train a model on a folder of scenes, with the backbone frozen.

    Example: mgcap train scenes/ --train-ratio 0.8 --out model.mgcap
    """
    from mgcap.data.folders import content_hashes, open_folder
    from mgcap.data.splits import Split, make_split, read_split

    if sum(value is not None for value in (train_ratio, train_count, split)) > 1:
        raise DataError("give only one of --train-ratio, --train-count and --split")
    model = o.classifier(context)
    out = check_writable(out)
    folder = open_folder(data)
    words.print(f"{len(folder)} images of {len(folder.classes)} classes in {folder.root}")
    sides = Split(tuple(range(len(folder))), ())
    if split is not None:
        sides = read_split(split, folder)
    elif train_ratio is not None or train_count is not None:
        part = train_count if train_ratio is None else float(train_ratio)
        with bars("Looking for copies", len(folder)) as step:
            marks = content_hashes(folder.paths, lambda: step(1))
        sides = make_split(folder.targets, part or 0, seed, marks, folder.classes)
    training = folder.subset(sides.train)
    model.fit(training.paths, training.labels)
    words.print(f"engine: {model.engine_.name}")
    for _, error in model.skipped_:
        words.print(f"passed over: {error}", markup=False)
    model.provenance_["data"] = {"root": folder.root.name, "images": len(folder), "classes": len(folder.classes)}
    if sides.test:
        _test(model, folder, sides, out)
    elif model.cv_accuracy_ is not None:
        words.print(f"cross-validated accuracy of the head on the training images: {100 * model.cv_accuracy_:.2f} %")
    with atomic_path(out) as temporary:
        model.save(temporary)
        if out.exists():
            previous = out.with_name(f"{out.stem}.previous{out.suffix}")
            out.replace(previous)
            words.print(f"the model that was there is now {previous}")
    words.print(f"model: {out}")


def _test(model: SceneClassifier, folder: SceneFolder, sides: Split, out: Path) -> None:
    import numpy as np

    from mgcap.data.splits import write_split

    testing = folder.subset(sides.test)
    kept, proba = model.predict_readable(
        testing.paths, on_error=lambda i, error: words.print(f"passed over: {error}", markup=False)
    )
    if not kept:
        raise DataError("none of the held-out images could be read")
    truth = np.array(testing.labels)[kept]
    accuracy = float((model.classes_[proba.argmax(1)] == truth).mean())
    model.metrics_ |= {"test_accuracy": accuracy, "test_images": len(kept)}
    file = out.with_suffix(".split.csv")
    write_split(file, folder, sides)
    model.provenance_["split"] = file.name
    words.print(f"accuracy on {len(kept)} held-out images: {100 * accuracy:.2f} %")
    words.print(f"split: {file}")
