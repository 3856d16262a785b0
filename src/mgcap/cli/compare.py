"""``mgcap compare``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mgcap.cli import options as o
from mgcap.cli.console import bars, check_writable, data, guarded, words
from mgcap.errors import DataError, ImageError
from mgcap.persistence.files import write_json, write_rows

if TYPE_CHECKING:
    from mgcap.data.folders import SceneFolder

Row = dict[str, Any]

_COLUMNS = ("method", "accuracy, %", "fit, s", "ms/image", "parameters", "memory, MiB", "p")


@guarded
def compare(
    scenes: Annotated[Path | None, typer.Argument(help="A folder with one subfolder per class.")] = None,
    methods: Annotated[
        str | None, typer.Option(help="Names or families, as vgg16-svm,handcrafted; all by default.")
    ] = None,
    show: Annotated[bool, typer.Option("--list", help="Say which methods there are, and leave.")] = False,
    add: Annotated[list[Path] | None, typer.Option(help="A Python file that registers methods of your own.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for runs, table and report.")] = Path("comparison"),
    train_ratio: Annotated[float, typer.Option(help="Training part of each class.")] = 0.8,
    runs: Annotated[int, typer.Option(min=1, max=1000, help="Number of seeded splits.")] = 10,
    splits: o.Splits = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Methods at the same time; default: one per core.")] = None,
    seed: o.Seed = 0,
    engine: o.Engine = "auto",
    device: o.Device = "auto",
    cache: o.Cache = True,
    json_file: o.Json = None,
) -> None:
    """Many methods on the same splits of your images, in one table.

    A killed comparison goes on where it stopped when the same command is given again.

    Example: mgcap compare scenes/ --runs 3 --methods mgcap-compact,vgg16-svm,handcrafted
    """
    from mgcap.baselines import find_methods
    from mgcap.baselines.comparison import Comparison, as_listed
    from mgcap.data.folders import open_folder
    from mgcap.runtime import Runtime

    files = [path.expanduser().resolve() for path in add or ()]
    if show:
        _list([as_listed(about) for about, _ in find_methods(files).values()], json_file)
        return
    if scenes is None:
        raise DataError("give a folder of scenes, or --list")
    check_writable(out / "comparison.json")
    folder = _readable(open_folder(scenes))
    words.print(f"{len(folder)} images of {len(folder.classes)} classes in {folder.root}")
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
    _write(rows, comparison, folder, out)
    if json_file != "-":
        _print(rows)
    o.write_json(json_file, {"methods": rows})
    words.print(f"table and report: {out}")
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
                words.print(f"passed over: {error}", markup=False)
            step(1)
    return folder.subset(kept)


def _list(found: list[Row], json_file: str | None) -> None:
    o.write_json(json_file, {"methods": found})
    if json_file == "-":
        return
    for family in dict.fromkeys(row["family"] for row in found):
        data.print(family, style="bold")
        for row in (row for row in found if row["family"] == family):
            lacks = f" [needs {', '.join(row['missing'])}: pip install 'mgcap[baselines]']" if row["missing"] else ""
            data.print(f"  {row['name']:<20}{row['title']} ({row['source']}): {row['what']}{lacks}", markup=False)


def _cells(row: Row) -> tuple[str, ...]:
    if row["error"]:
        return (row["title"], f"failed: {row['error']}", *[""] * (len(_COLUMNS) - 2))
    spread = "" if row["std"] is None else f" +- {row['std']:.2f}"
    chance = "" if row["p_value"] is None else f"{row['p_value']:.3f}"
    return (
        row["title"],
        f"{row['mean']:.2f}{spread}",
        f"{row['fit_seconds']:.1f}",
        f"{row['predict_ms']:.1f}",
        f"{row['parameters']:,.0f}",
        f"{row['memory_mib']:.0f}",
        chance,
    )


def _print(rows: list[Row]) -> None:
    from rich.table import Table

    table = Table(*_COLUMNS, box=None)
    for row in rows:
        table.add_row(*(cell.replace("[", r"\[") for cell in _cells(row)))
    data.print(table)


def _write(rows: list[Row], comparison: Any, folder: SceneFolder, out: Path) -> None:
    from mgcap.report.charts import cost_chart
    from mgcap.report.page import chart, write_page
    from mgcap.report.published import published_table

    flat = [{key: value for key, value in row.items() if key != "runs"} for row in rows]
    write_rows(out / "methods.csv", flat)
    write_json(out / "summary.json", {"methods": rows})
    done = [row for row in rows if row["mean"] is not None]
    charts = []
    if done:
        cost_chart(done, out / "cost.png")
        charts = [chart("accuracy against cost", out / "cost.png")]
    train, test = len(comparison.splits[0].train), len(comparison.splits[0].test)
    own = [{"method": row["title"], "mean": row["mean"], "std": row["std"]} for row in done]
    published = published_table(folder.classes, train / (train + test), own) if own else None
    write_page(
        out / "report.html",
        f"Methods compared on {folder.root.name}",
        f"{len(folder.classes)} classes, {train} training and {test} test images, "
        f"{len(comparison.splits)} run{'s' * (len(comparison.splits) > 1)} on the same splits",
        o.command_line(),
        {"identity": comparison.fingerprint, "methods": [row["name"] for row in rows]},
        headline=f"{done[0]['title']}: {done[0]['mean']:.2f} %" if done else "",
        headline_note="the best mean accuracy on test images" if done else "",
        tables=[
            {
                "title": "All methods",
                "columns": _COLUMNS,
                "rows": [_cells(row) for row in rows],
                "note": "p: how probable so large a difference from the first row would be if there were none (t-test "
                "for resampled splits). Fitting counts descriptors only where they were not in the cache.",
            },
            *([published] if published else []),
        ],
        charts=charts,
    )
