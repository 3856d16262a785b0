"""``mgcap compare``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mgcap.cli import completion as c
from mgcap.cli import options as o
from mgcap.cli.console import bars, check_writable, guarded, show_table, words
from mgcap.cli.signature import expanded
from mgcap.errors import DataError, ImageError

if TYPE_CHECKING:
    from mgcap.data.folders import SceneFolder


@guarded
@expanded
def compare(
    scenes: Annotated[Path | None, typer.Argument(help=o.DATA)] = None,
    methods: Annotated[
        str | None,
        typer.Option(
            help="Names or families, as vgg16-svm,handcrafted; default: all methods.",
            autocompletion=c.several_of(c.METHODS),
        ),
    ] = None,
    show: Annotated[bool, typer.Option("--list", help="List the methods, and leave.")] = False,
    add: Annotated[
        list[Path] | None,
        typer.Option(
            help="A Python file of yours that registers methods, as --add mine.py; it is run. May be repeated."
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for runs, table and report.")] = Path("comparison"),
    train_ratio: o.TrainRatio = 0.8,
    runs: o.Runs = 10,
    splits: o.Splits = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Number of methods at the same time; default: one per core.")
    ] = None,
    seed: o.Seed = 0,
    engine: o.Engine = "auto",
    device: o.Device = "auto",
    cache: o.Cache = True,
    json_file: o.Json = None,
) -> None:
    """Many methods on the same splits of your images, in one table.

    A comparison that was killed is resumed when the same command is given again.

    Example: mgcap compare scenes/ --runs 3 --methods mgcap-compact,vgg16-svm,handcrafted
    """
    from mgcap.baselines import find_methods
    from mgcap.baselines.comparison import Comparison, as_listed
    from mgcap.data.folders import open_folder
    from mgcap.report import comparison_report
    from mgcap.report.comparison import COLUMNS, cells
    from mgcap.runtime import Runtime

    files = [path.expanduser().resolve() for path in add or ()]
    if show:
        _list([as_listed(about) for about, _ in find_methods(files).values()], json_file)
        return
    if scenes is None:
        raise DataError("give a folder of scenes, or --list")
    check_writable(out / "comparison.json")
    folder = _readable(open_folder(scenes, progress=bars))
    words.print(f"{len(folder)} images of {len(folder.classes)} classes in {folder.root}", markup=False)
    comparison = Comparison(
        folder,
        o.make_splits(folder, splits, float(train_ratio), runs, seed),
        methods.split(",") if methods else [],
        out,
        files=files,
        jobs=jobs,
        runtime=Runtime(engine, device, seed, cache, bars),
    )
    rows = comparison.run()
    parts, command = comparison.splits, o.command_line()
    comparison_report(rows, folder, parts, out, fingerprint=comparison.fingerprint, command=command)
    if json_file != "-":
        show_table(COLUMNS, [cells(row, "+-") for row in rows])
    o.write_json(json_file, {"methods": rows})
    words.print(f"table and report: {out}", markup=False)
    if all(row["error"] for row in rows):
        raise SystemExit(1)


def _readable(folder: SceneFolder) -> SceneFolder:
    """The images that can be read; the others are named."""
    from mgcap.data.stream import to_tensor

    kept = []
    with bars("Looking at the images", len(folder)) as step:
        for index, path in enumerate(folder.paths):
            try:
                to_tensor(path)
                kept.append(index)
            except ImageError as error:
                words.print(f"skipped: {error}", markup=False)
            step(1)
    return folder.subset(kept)


def _list(found: list[dict[str, Any]], json_file: str | None) -> None:
    o.write_json(json_file, {"methods": found})
    if json_file == "-":
        return
    needs = [f"{', '.join(row['missing'])}: pip install 'mgcap[baselines]'" if row["missing"] else "" for row in found]
    names = ("family", "name", "title", "source", "what")
    rows = [[*(row[name] for name in names), need] for row, need in zip(found, needs, strict=True)]
    show_table(("family", "name", "title", "source", "what it does", "missing"), rows)
