"""``mgcap demo``."""

from __future__ import annotations

import json
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mgcap.cli import options as o
from mgcap.cli.console import bars, data, guarded, show_table, words
from mgcap.cli.signature import expanded
from mgcap.errors import BundleError, WeightsError

if TYPE_CHECKING:
    from mgcap.classifier import SceneClassifier
    from mgcap.geo.mapping import Mapped

#: Tried in this order; the first whose weights can be had is used.
BACKBONES = ("resnet50-v1", "resnet50", "vgg16")
SEED = 0
RATIO = 0.6


def _backbone() -> str:
    from mgcap.backbones.pretrained import load_weights

    for name in BACKBONES:
        try:
            load_weights(name, bars.say)
        except WeightsError as error:
            words.print(str(error), markup=False)
            continue
        if name != BACKBONES[0]:
            words.print(f"{BACKBONES[0]} could not be had; the demo continues with {name}.")
        return name
    raise WeightsError("no ImageNet weights could be had, so there is nothing to show; see mgcap doctor")


@guarded
@expanded
def demo(
    out: Annotated[Path, typer.Option(help="Folder for scenes, model, predictions and map.")] = Path("demo-output"),
    per_class: Annotated[int, typer.Option(min=4, help="Number of scenes to draw per class.")] = 30,
    engine: o.Engine = "auto",
) -> None:
    """Draw scenes, train MG-CAP on 60 % of them, test it on the rest, predict, and map a real aerial scene.

    Example: mgcap demo --out demo-output
    """
    import numpy as np

    from mgcap.classifier import SceneClassifier
    from mgcap.data.folders import open_folder
    from mgcap.data.splits import make_split, write_split
    from mgcap.data.synthetic import CLASSES, write_scenes
    from mgcap.evaluation.summary import evaluate_model
    from mgcap.report import demo_report

    start = time.monotonic()
    backbone = _backbone()
    scenes = out / "scenes"
    with bars("Drawing scenes", per_class * len(CLASSES)) as step:
        write_scenes(scenes, per_class, 256, SEED, step)
    folder = open_folder(scenes)
    split = make_split(folder.targets, RATIO, SEED, classes=folder.classes)
    training, testing = folder.subset(split.train), folder.subset(split.test)
    write_split(out / "split.csv", folder, split)
    path = out / "model.mgcap"
    model = _reusable(path, backbone, len(training), len(testing))
    if model is None:
        model = SceneClassifier(backbone=backbone, engine=engine, seed=SEED, progress=bars)
        model.fit(training.paths, training.labels)
        summary = evaluate_model(model, testing, lambda i, error: None)
        model.metrics_ |= {"test_accuracy": summary["mean"] / 100, "test_images": len(testing), "summary": summary}
        model.provenance_["data"] = {"root": "synthetic scenes", "images": len(folder), "classes": len(CLASSES)}
        model.save(path)
    else:
        words.print(f"the model in {path} is up to date and is used again")
    shown = [testing.paths[i] for i in np.linspace(0, len(testing) - 1, 8).astype(int)]
    proba = model.predict_proba(shown)
    rows = [
        {"path": str(p), "class": str(model.classes_[q.argmax()]), "probability": round(float(q.max()), 4)}
        for p, q in zip(shown, proba, strict=True)
    ]
    predictions = out / "predictions.json"
    predictions.write_text(json.dumps(rows, indent=1) + "\n")
    data.print(f"\nMG-CAP ({backbone}, {model.model_.config.rotations} rotations) on {len(CLASSES)} classes:")
    data.print(f"accuracy on {len(testing)} held-out scenes: {100 * model.metrics_['test_accuracy']:.2f} %")
    show_table(
        ("scene", "class", "probability"), [(Path(str(r["path"])).name, r["class"], r["probability"]) for r in rows]
    )
    mapped = _map_real_scene(out / "map", engine)
    demo_report(model, scenes, out / "report.html", mapped=mapped, command=o.command_line())
    named = [("scenes", scenes), ("split", out / "split.csv"), ("model", path), ("predictions", predictions)]
    named += [("map", file) for file in (mapped.files if mapped else [])] + [("report", out / "report.html")]
    for name, where in named:
        data.print(f"{name}: {where}", markup=False)
    program = "mgcap" if shutil.which("mgcap") else str(Path(sys.executable).with_name("mgcap"))
    data.print(
        f"done in {time.monotonic() - start:.0f} s; next: {program} predict YOUR.jpg, {program} serve", markup=False
    )


def _map_real_scene(out: Path, engine: str) -> Mapped | None:
    """Map Kitsap County with the model that comes with the package; without network there is just no map."""
    from mgcap.classifier import SceneClassifier
    from mgcap.data.sample_scene import sample_scene
    from mgcap.persistence.shipped import DEFAULT_MODEL

    try:
        from mgcap.geo.mapping import map_raster

        scene = sample_scene(bars.say)
        classifier = SceneClassifier.load(DEFAULT_MODEL, engine=engine, progress=bars)
        start = time.monotonic()
        mapped = map_raster(classifier, None, scene, out / "kitsap.gpkg", progress=bars)
    except (WeightsError, ImportError) as error:
        words.print(f"no map in this demo: {error}", markup=False)
        return None
    grid = mapped.plan.grid
    data.print(
        f"\nmap of a real scene, {grid.width} x {grid.height} pixels of Kitsap County at 0.3 m: "
        f"{grid.rows * grid.columns} cells in {time.monotonic() - start:.0f} s"
    )
    largest = mapped.areas.argsort()[::-1][:5]
    show_table(("class", "hectares"), [(mapped.names[k], f"{mapped.areas[k] / 10_000:.1f}") for k in largest])
    return mapped


def _reusable(path: Path, backbone: str, trained: int, tested: int) -> SceneClassifier | None:
    """The model of an earlier run, if it was made from the same scenes with the same backbone."""
    from mgcap.classifier import SceneClassifier

    try:
        model = SceneClassifier.load(path, progress=bars)
    except BundleError:
        return None
    same = model.provenance_.get("images") == trained and model.metrics_.get("test_images") == tested
    same = same and "summary" in model.metrics_
    return model if same and model.model_.config.backbone == backbone else None
