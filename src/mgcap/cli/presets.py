"""``mgcap presets``."""

from __future__ import annotations

from typing import Annotated

import typer

from mgcap.cli import options as o
from mgcap.cli.console import bars, guarded, show_table, words


@guarded
def presets(
    measure: Annotated[
        bool, typer.Option("--measure", help="Also measure the time of an image on this machine, a minute or two.")
    ] = False,
    json_file: o.Json = None,
) -> None:
    """Accuracy and time of the presets and of fewer views, from the fastest to the most accurate.

    Example: mgcap presets --measure
    """
    from mgcap.bench.presets import POINTS, measured_here, shipped_curve

    curve, here = shipped_curve(), {}
    if measure:
        with bars("Measuring", len(POINTS)) as step:
            for options, milliseconds in measured_here():
                here[options] = milliseconds
                step(1)
    report = [
        {**own.model_dump(), **({"milliseconds_here": here[own.options]} if here else {})} for own in curve.points
    ]
    o.write_json(json_file, {"machine": curve.machine, "command": curve.command, "points": report})
    if json_file == "-":
        return
    rows = []
    for own in curve.points:
        accuracies = [f"{mean:.2f} +- {std:.2f}" for mean, std in own.accuracy.values()]
        times = [f"{own.milliseconds:.1f}", *([f"{here[own.options]:.1f}"] if here else [])]
        rows.append((own.options, *times, *accuracies))
    shares = [f"accuracy, {share} to train" for share in curve.points[0].accuracy]
    show_table(("options", "ms an image", *(["ms here"] if here else []), *shares), rows)
    words.print(
        f"UC Merced, ten splits, images that training never saw; {curve.machine} ({curve.command})", markup=False
    )
