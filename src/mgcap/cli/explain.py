"""``mgcap explain``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from mgcap.cli import options as o
from mgcap.cli.console import bars, check_writable, data, guarded, words
from mgcap.cli.predict import expand
from mgcap.errors import DataError
from mgcap.persistence.shipped import DEFAULT_MODEL


@guarded
def explain(
    images: Annotated[list[str] | None, typer.Argument(help="Files, globs and folders.")] = None,
    model: o.Model = DEFAULT_MODEL,
    out: Annotated[Path, typer.Option(help="Folder for figures and pages.")] = Path("explanations"),
    target: Annotated[
        str | None, typer.Option("--class", help="The class to speak for; default: the most probable.")
    ] = None,
    against: Annotated[str | None, typer.Option(help="A class to speak against: why this and not that?")] = None,
    dataset: Annotated[Path | None, typer.Option(help="Summarise this folder of scenes as well.")] = None,
    split: Annotated[
        Path | None,
        typer.Option(help="Split of --dataset: neighbours are from its training side, the rest from its test side."),
    ] = None,
    nearest: Annotated[
        int, typer.Option(help="Show so many nearest images of --dataset for each image.", min=0, max=50)
    ] = 0,
    flat: Annotated[str, typer.Option("--map", help="Map of the descriptors of --dataset: tsne, pca, none.")] = "tsne",
    faithfulness: Annotated[
        int, typer.Option(help="Measure deletion and insertion on so many images of --dataset.", min=0)
    ] = 0,
    seed: o.Seed = 0,
    engine: o.Engine = "auto",
    device: o.Device = "auto",
) -> None:
    """Show why: canonical appearances, votes and heat maps of images, and how a whole set is turned.

    What is done already is kept when the same command is given again.

    Example: mgcap explain tile.jpg --model model.mgcap --dataset scenes/ --nearest 6 --out explanations
    """
    from mgcap.classifier import SceneClassifier
    from mgcap.explain.images import explain_files, write_image_gallery

    if not images and dataset is None:
        raise DataError("give images, or a folder of scenes by --dataset")
    for name, value in (("nearest", nearest), ("faithfulness", faithfulness), ("split", split)):
        if dataset is None and value:
            raise DataError(f"--{name} needs --dataset")
    if flat not in ("tsne", "pca", "none"):
        raise DataError(f"--map takes tsne, pca or none, not '{flat}'")
    files = expand(images or [])
    check_writable(out / "images.html")
    classifier = SceneClassifier.load(model, device=device, engine=engine, progress=bars)
    if files:
        rows = explain_files(classifier, files, out, target, against, bars)
        write_image_gallery(out / "images.html", rows, model.name, o.command_line())
        for row in rows:
            data.print(row["error"] or _line(row), markup=False)
        words.print(f"page: {out / 'images.html'}")
    if dataset is not None:
        _summarise(classifier, dataset, split, files, out, model.name, nearest, flat, faithfulness, seed)
    if files and all(row["error"] for row in rows):
        raise SystemExit(1)


def _line(row: dict[str, Any]) -> str:
    pairs = zip(row["granularities"], row["angles"], strict=True)
    angles = ", ".join(f"{angle:g} at {ratio:g}" for ratio, angle in pairs)
    return f"{row['path']}: {row['class']} ({row['probability']:.3f}), canonical angles {angles}"


def _summarise(
    classifier: Any,
    dataset: Path,
    split: Path | None,
    files: list[Path],
    out: Path,
    model: str,
    nearest: int,
    flat: str,
    faithfulness: int,
    seed: int,
) -> None:
    import numpy as np

    from mgcap.data.folders import open_folder
    from mgcap.data.splits import Split, read_split
    from mgcap.explain import sets
    from mgcap.explain.faithfulness import measure, randomised_weights
    from mgcap.explain.scan import scan_images
    from mgcap.report.page import write_gallery

    folder = open_folder(dataset, minimum_classes=1)
    everything = tuple(range(len(folder)))
    sides = read_split(split, folder) if split else Split(everything, everything)
    classes = [str(name) for name in classifier.classes_]
    config = classifier.model_.config
    passed: list[str] = []
    scan = scan_images(classifier, folder.paths, lambda i, error: passed.append(str(error)), out / "scan", bars)
    for line in passed:
        words.print(f"passed over: {line}", markup=False)
    if not len(scan.index):
        raise DataError(f"none of the images in {dataset} could be read")
    sections, means = sets.pose_sections(folder, scan, config, classes, out, bars)
    test = scan.only(sides.test)
    sections += sets.confusion_sections(folder, test, config, classes)
    if nearest and files:
        queries = scan_images(classifier, files, lambda i, error: None, out / "scan", bars)
        known = scan.only(sides.train)
        sections += sets.neighbour_section(files, queries, folder, known, min(nearest, len(known.index)))
    if faithfulness:
        chosen = np.random.default_rng(seed).permutation(test.index)[:faithfulness]
        items = [folder.paths[int(i)] for i in chosen]
        rows, curves = measure(classifier, items, seed, bars)
        sections += sets.faithfulness_section(rows, curves, randomised_weights(classifier, items[:10], seed), out)
        for name in curves:
            own = [row for row in rows if row["map"] == name]
            areas = [f"{kind} {np.mean([r[kind] for r in own]):.3f}" for kind in ("deletion", "insertion")]
            data.print(f"{name}: {', '.join(areas)}")
    points = None if flat == "none" else sets.descriptor_map(folder, scan, classes, flat, seed)
    subtitle = f"{len(scan.index)} images of {len(set(folder.labels))} classes by {model}"
    page = out / "dataset.html"
    write_gallery(page, f"Poses of {folder.root.name}", subtitle, sections, points=points, command=o.command_line())
    for name, value in means.items():
        data.print(f"{name.replace('_', ' ')}, mean of the classes: {value:.3f}")
    words.print(f"page: {page}")
