"""``mgcap bench``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from mgcap.cli import options as o
from mgcap.cli.console import bars, check_writable, data, guarded, show_table, words
from mgcap.cli.signature import expanded
from mgcap.persistence.files import write_rows
from mgcap.persistence.shipped import DEFAULT_MODEL

app = typer.Typer(invoke_without_command=True)

Images = Annotated[int, typer.Option(min=1, help="Number of images that are looked at together.")]
Repeats = Annotated[int, typer.Option(min=1, help="Number of rounds that count, after one of warm-up.")]


@dataclass(frozen=True)
class PaperOptions(o.ModelOptions):
    """Options of a model, the paper's by default."""

    preset: o.Preset = "paper"


@app.callback()
@guarded
@expanded
def everything(
    context: typer.Context,
    options: PaperOptions,
    out: Annotated[Path, typer.Option(help="Folder for the tables and the plot.")] = Path("bench-output"),
    images: Images = 4,
    repeats: Repeats = 3,
    json_file: o.Json = None,
) -> None:
    """Measure speed and memory on this machine: engines, stages, growth, the spectral layer and the machine's limits.

    Example: mgcap bench --out bench-output
    """
    if context.invoked_subcommand:
        return
    from mgcap.bench import profile
    from mgcap.bench.speed import CONTENDERS, bench_inference
    from mgcap.report.charts import bench_chart

    config = options.config()
    check_writable(out / "inference.csv")
    report = bench_inference(config, images=images, repeats=repeats, progress=bars)
    engine = profile.best_engine()
    tables: dict[str, list[dict[str, Any]]] = {"inference": [_row(name, report) for name in CONTENDERS]}
    sides = (64, 129, 257, 513) if config.preset != "compact" else (64, 129, 257)
    with bars("Stages, growth, spectral layer, limits", 4) as step:
        tables["stages"] = profile.bench_stages(config, engine, repeats)
        step(1)
        tables["growth"] = profile.bench_growth(config, engine, repeats)
        step(1)
        tables["spectral"] = profile.bench_spectral(sides, repeats=repeats)
        step(1)
        tables["limit"] = profile.bench_limit(report, config)
        step(1)
    for name, rows in tables.items():
        write_rows(out / f"{name}.csv", rows)
    bench_chart(tables, out / "bench.png")
    words.print(f"tables and plot: {out}", markup=False)
    o.write_json(json_file, {**report, **{f"table_{name}": rows for name, rows in tables.items()}})
    if json_file != "-":
        for name, rows in tables.items():
            data.print(name)
            _show(rows)


@app.command("inference")
@guarded
@expanded
def inference(
    options: PaperOptions,
    images: Images = 4,
    repeats: Repeats = 3,
    json_file: o.Json = None,
    csv_file: Annotated[
        Path | None, typer.Option("--csv", help="Write a row for each contender to this file, as speed.csv.")
    ] = None,
) -> None:
    """Seconds per image of a plain port of the authors' script, of torch, and of OpenVINO in fp32 and int8.

    Example: mgcap bench inference --preset compact --json -
    """
    from mgcap.bench.speed import CONTENDERS, bench_inference

    report = bench_inference(options.config(), images=images, repeats=repeats, progress=bars)
    rows = [_row(name, report) for name in CONTENDERS]
    if csv_file:
        write_rows(csv_file, rows)
        words.print(f"table: {csv_file}", markup=False)
    o.write_json(json_file, report)
    if json_file != "-":
        _show(rows)
    for name, reason in report["missing"].items():
        words.print(f"{name}: {reason}", markup=False)


@app.command("map")
@guarded
@expanded
def bench_maps(
    raster: Annotated[
        Path | None, typer.Argument(help="The raster; default: the sample scene of Kitsap County, which is fetched.")
    ] = None,
    model: o.Model = DEFAULT_MODEL,
    cells: Annotated[int, typer.Option(help="Cells along the side of a tile.", min=1, max=16)] = 4,
    test: Annotated[
        Path | None,
        typer.Option(help="A folder of scenes: also train on 80 % of each class, and test the rest put side by side."),
    ] = None,
    engine: o.Engine = "auto",
    device: o.Device = "auto",
    json_file: o.Json = None,
) -> None:
    """Seconds of a map tile by tile and of one by an index, and how far both agree.

    Example: mgcap bench map scene.tif --json -
    """
    from mgcap.classifier import SceneClassifier
    from mgcap.data.sample_scene import sample_scene

    classifier = SceneClassifier.load(model, device=device, engine=engine, progress=bars)
    from mgcap.geo.measured import bench_map

    report = bench_map(classifier, model, raster or sample_scene(bars.say), cells, bars)
    if test is not None:
        report["mosaics"] = _mosaics(test, engine, device)
    o.write_json(json_file, report)
    if json_file != "-":
        parts = ("shares", "mosaics")
        plain = {name: value for name, value in report.items() if name not in parts}
        for group in (plain, *(report.get(part, {}) for part in parts)):
            if group:
                show_table(("what", "figure"), [(name.replace("_", " "), str(value)) for name, value in group.items()])


def _mosaics(test: Path, engine: str, device: str) -> dict[str, Any]:
    from mgcap.classifier import SceneClassifier
    from mgcap.data.folders import open_folder
    from mgcap.geo.measured import mosaic_accuracy

    folder = open_folder(test, progress=bars)
    (split,) = o.make_splits(folder, None, 0.8, 1, 0)
    training = folder.subset(split.train)
    trained = SceneClassifier(engine=engine, device=device, progress=bars).fit(training.paths, training.labels)
    return mosaic_accuracy(trained, folder, split)


def _show(rows: list[dict[str, Any]]) -> None:
    columns = dict.fromkeys(key for row in rows for key in row)
    show_table([key.replace("_", " ") for key in columns], [[row.get(key, "") for key in columns] for row in rows])


def _row(name: str, report: dict[str, Any]) -> dict[str, Any]:
    seconds = report[name]
    ratio = {key: report.get(f"speedup_over_{key}", {}).get(name) for key in ("plain", "torch")}
    return {
        "contender": name,
        "seconds_per_image": "" if seconds is None else f"{seconds:.4f}",
        "times_faster_than_plain": f"{ratio['plain']:.2f}" if ratio["plain"] else "",
        "times_faster_than_torch": f"{ratio['torch']:.2f}" if ratio["torch"] else "",
        "peak_memory_mib": report["peak_memory_mib"].get(name) or "",
    }
