"""``mgcap bench``."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Annotated, Any

import typer

from mgcap.assets import atomic_path
from mgcap.cli import options as o
from mgcap.cli.console import bars, data, guarded, words

app = typer.Typer(help="Measure speed and memory on this machine.", no_args_is_help=True)


@app.command("inference")
@guarded
def inference(
    preset: o.Preset = "paper",
    backbone: o.Backbone = None,
    granularities: o.Granularities = None,
    rotations: o.Rotations = None,
    settings: o.Settings = None,
    images: Annotated[int, typer.Option(min=1, help="Images that are looked at together.")] = 4,
    repeats: Annotated[int, typer.Option(min=1, help="Rounds that count, after one of warm-up.")] = 3,
    json_file: Annotated[str | None, typer.Option("--json", help="Write one JSON object to a file, or - .")] = None,
    csv_file: Annotated[Path | None, typer.Option("--csv", help="Write a row for each contender.")] = None,
) -> None:
    """Seconds per image of a plain port of the authors' script, of torch, and of OpenVINO in fp32 and int8.

    Example: mgcap bench inference --preset compact --json -
    """
    from mgcap.config import MGCAPConfig
    from mgcap.evaluation.speed import CONTENDERS, bench_inference

    values = o.configuration(backbone, granularities, rotations, None, settings)
    report = bench_inference(MGCAPConfig(preset=preset, **values), images=images, repeats=repeats, progress=bars)  # type: ignore[arg-type]
    rows = [_row(name, report) for name in CONTENDERS]
    if csv_file:
        with atomic_path(csv_file) as temporary, temporary.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
        words.print(f"table: {csv_file}")
    if json_file == "-":
        typer.echo(json.dumps(report, indent=1))
        return
    if json_file:
        with atomic_path(Path(json_file)) as temporary:
            temporary.write_text(json.dumps(report, indent=1) + "\n")
        words.print(f"report: {json_file}")
    for row in rows:
        data.print("  ".join(f"{key} {value}" for key, value in row.items()), markup=False)
    for name, reason in report["missing"].items():
        words.print(f"{name}: {reason}", markup=False)


def _row(name: str, report: dict[str, Any]) -> dict[str, Any]:
    seconds = report[name]
    return {
        "contender": name,
        "seconds_per_image": "" if seconds is None else f"{seconds:.4f}",
        "times_faster_than_plain": "" if seconds is None else f"{report['speedup_over_plain'][name]:.2f}",
        "peak_memory_mib": report["peak_memory_mib"].get(name) or "",
    }
