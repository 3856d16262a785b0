"""``mgcap explain``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mgcap.cli import completion as c
from mgcap.cli import options as o
from mgcap.cli.console import bars, check_writable, data, guarded, show_table, words
from mgcap.cli.predict import expand
from mgcap.cli.signature import expanded
from mgcap.errors import DataError, did_you_mean
from mgcap.persistence.shipped import DEFAULT_MODEL

if TYPE_CHECKING:
    from mgcap.explain.set_page import SetPage

#: What ``--map`` takes.
MAPS = ("tsne", "pca", "none")


@guarded
@expanded
def explain(
    images: Annotated[list[str] | None, typer.Argument(help="Files, globs and folders.")] = None,
    model: o.Model = DEFAULT_MODEL,
    out: Annotated[Path, typer.Option(help="Folder for figures and pages.")] = Path("explanations"),
    target: Annotated[
        str | None,
        typer.Option("--class", help="Show the evidence for this class, as harbor; default: the most probable one."),
    ] = None,
    against: Annotated[
        str | None, typer.Option(help="Show the evidence against this class, as river: why not that one?")
    ] = None,
    dataset: Annotated[
        Path | None, typer.Option(help="Summarise this folder of scenes as well, as --dataset scenes/.")
    ] = None,
    split: Annotated[
        Path | None,
        typer.Option(
            help="Split file of --dataset: neighbours are from its training images, the rest from its test images."
        ),
    ] = None,
    nearest: Annotated[
        int, typer.Option(help="Number of nearest images of --dataset to show for each image.", min=0, max=50)
    ] = 0,
    flat: Annotated[
        str,
        typer.Option(
            "--map",
            help="Map of the descriptors of --dataset: tsne, pca or none.",
            autocompletion=c.one_of(MAPS),
        ),
    ] = "tsne",
    faithfulness: Annotated[
        int, typer.Option(help="Number of images of --dataset on which to measure deletion and insertion.", min=0)
    ] = 0,
    seed: o.Seed = 0,
    add: o.Add = None,
    engine: o.Engine = "auto",
    device: o.Device = "auto",
) -> None:
    """Show why: canonical appearances, votes and heat maps of images, and how a whole set is rotated.

    What is done already is kept when the same command is given again.

    Example: mgcap explain tile.jpg --model model.mgcap --dataset scenes/ --nearest 6 --out explanations
    """
    from mgcap.classifier import SceneClassifier
    from mgcap.data.folders import open_folder
    from mgcap.data.splits import read_split
    from mgcap.explain.images import explain_files, write_image_gallery
    from mgcap.explain.set_page import Wanted, write_set_page

    if not images and dataset is None:
        raise DataError("give images, or a folder of scenes by --dataset")
    for name, value in (("nearest", nearest), ("faithfulness", faithfulness), ("split", split)):
        if dataset is None and value:
            raise DataError(f"--{name} needs --dataset")
    if flat not in MAPS:
        raise DataError(f"--map takes tsne, pca or none, not '{flat}'{did_you_mean(flat, MAPS)}")
    files = expand(images or [])
    check_writable(out / "images.html")
    o.run_added(add)
    classifier = SceneClassifier.load(model, device=device, engine=engine, progress=bars)
    command, rows = o.command_line(), []
    if files:
        rows = explain_files(classifier, files, out, target, against, bars)
        write_image_gallery(out / "images.html", rows, model.name, command)
        show_table(("image", "class", "probability", "canonical angles", "error"), [_cells(row) for row in rows])
        words.print(f"page: {out / 'images.html'}", markup=False)
    if dataset is not None:
        folder = open_folder(dataset, minimum_classes=1, progress=bars)
        sides = read_split(split, folder) if split else None
        wanted = Wanted(sides, files, nearest, flat, faithfulness, seed)
        _tell(write_set_page(classifier, folder, out, wanted, model=model.name, command=command, progress=bars))
    if files and all(row["error"] for row in rows):
        raise SystemExit(1)


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    if row["error"]:
        return (row["path"], "", "", "", row["error"])
    pairs = zip(row["granularities"], row["angles"], strict=True)
    angles = ", ".join(f"{angle:g} at {ratio:g}" for ratio, angle in pairs)
    return (row["path"], row["class"], f"{row['probability']:.3f}", angles, "")


def _tell(done: SetPage) -> None:
    for line in done.skipped:
        words.print(f"skipped: {line}", markup=False)
    if done.faithfulness:
        rows = [(n, f"{a['deletion']:.3f}", f"{a['insertion']:.3f}") for n, a in done.faithfulness.items()]
        show_table(("heat map", "deletion", "insertion"), rows)
        data.print()
    show_table(
        ("pose", "mean of the classes"),
        [(name.replace("_", " "), f"{value:.3f}") for name, value in done.means.items()],
    )
    words.print(f"page: {done.page}", markup=False)
