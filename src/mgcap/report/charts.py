"""Charts by matplotlib, drawn without a screen."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mgcap.persistence.files import atomic_path
from mgcap.report.colours import CHART

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Row = dict[str, Any]


def new_figure(width: float, height: float) -> Figure:
    """An empty figure that belongs to no window."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure in the format of the file's suffix, whole or not at all."""
    with atomic_path(path) as temporary:
        figure.savefig(temporary, format=path.suffix.lstrip("."), dpi=150)


def bars_of(axes: Axes, names: list[str], values: list[float], form: str, title: str) -> None:
    """Horizontal bars, the first on top, each with its value."""
    bars = axes.barh(names, values, color=CHART[0])
    axes.bar_label(bars, fmt=form, padding=3)
    axes.invert_yaxis()
    axes.set_xlim(0, max(values, default=1) * 1.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(title, loc="left")


def bench_chart(tables: dict[str, list[Row]], path: Path) -> None:
    """The picture of ``mgcap bench``."""
    figure = new_figure(13, 8)
    grid = figure.subplots(2, 3)
    inference = [row for row in tables["inference"] if row["seconds_per_image"]]
    names = [row["contender"].replace("_", " ") for row in inference]
    bars_of(grid[0, 0], names, [float(r["seconds_per_image"]) for r in inference], "%.3f", "seconds per image")
    memory = [float(row["peak_memory_mib"] or 0) for row in inference]
    bars_of(grid[0, 1], names, memory, "%.0f", "peak memory, MiB")
    stages = tables["stages"]
    title = f"ms per image by stage ({stages[0]['engine']})"
    bars_of(grid[0, 2], [r["stage"] for r in stages], [float(r["milliseconds"]) for r in stages], "%.1f", title)
    growth: Axes = grid[1, 0]
    for colour, what in zip(CHART, dict.fromkeys(row["what"] for row in tables["growth"]), strict=False):
        rows = [row for row in tables["growth"] if row["what"] == what]
        first = float(rows[0]["value"])
        x = [float(row["value"]) / first for row in rows]
        growth.plot(x, [float(row["seconds"]) for row in rows], "o-", color=colour, label=f"{what} (1 = {first:g})")
    growth.set(xlabel="times the smallest value", ylabel="seconds per image")
    growth.set_title("growth, from 1 granularity x 4 rotations", loc="left")
    growth.legend(frameon=False)
    spectral: Axes = grid[1, 1]
    for colour, method in zip(CHART, dict.fromkeys(row["method"] for row in tables["spectral"]), strict=False):
        rows = [row for row in tables["spectral"] if row["method"] == method]
        seconds = [float(row["seconds"]) for row in rows]
        spectral.loglog([int(row["side"]) for row in rows], seconds, "o-", color=colour, label=method)
    sides = sorted({int(row["side"]) for row in tables["spectral"]})
    spectral.set_xticks(sides, [str(side) for side in sides])
    spectral.minorticks_off()
    spectral.set(xlabel="side of the matrix", ylabel="seconds for 12, forward and backward")
    spectral.set_title("spectral layer", loc="left")
    spectral.legend(frameon=False)
    limit = tables["limit"]
    names = [f"{r['contender'].replace('_', ' ')}, of {r['peak_giga_multiply_adds_a_second']} G/s" for r in limit]
    bars_of(grid[1, 2], names, [float(r["share_of_peak"]) for r in limit], "%.2f", "share of the machine's peak")
    for axes in (growth, spectral):
        axes.spines[["top", "right"]].set_visible(False)
    save_figure(figure, path)


def ablation_chart(title: str, rows: list[Row], path: Path) -> None:
    """Mean accuracy of each setting with its standard deviation."""
    figure = new_figure(max(4.5, 0.9 * len(rows) + 1.5), 3.5)
    axes = figure.subplots()
    names, means = [row["setting"] for row in rows], [row["mean"] for row in rows]
    axes.errorbar(names, means, [row["std"] or 0 for row in rows], fmt="o", capsize=4, color=CHART[0])
    for x, row in enumerate(rows):
        axes.annotate(f"{row['mean']:.2f}", (x, row["mean"]), (8, 0), textcoords="offset points", va="center")
    axes.set_xlim(-0.5, len(rows) - 0.2)
    axes.set_ylabel("accuracy, %")
    axes.set_title(title, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    save_figure(figure, path)


#: Accuracies that an axis names, as far as they are needed.
ACCURACY_TICKS = (0, 20, 40, 50, 60, 70, 80, 85, 90, 93, 95, 96, 97, 98, 99, 99.5, 100)
#: What is added to an error in percent, so that an error of none has a place on a logarithmic axis.
NO_ERROR = 0.25


def cost_chart(rows: list[Row], path: Path) -> None:
    """Accuracy of methods against the time that an image takes, a colour for each family; errors on a log scale."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    figure = new_figure(10, 6.5)
    axes = figure.subplots()
    axes.set_xscale("log")
    axes.set_yscale(
        "function",
        functions=(
            lambda accuracy: -np.log10(np.maximum(100 + NO_ERROR - accuracy, 1e-3)),
            lambda place: 100 + NO_ERROR - 10.0 ** (-place),
        ),
    )
    labels = []
    for colour, family in zip(CHART, dict.fromkeys(row["family"] for row in rows), strict=False):
        own = [row for row in rows if row["family"] == family]
        x, y = [row["predict_ms"] for row in own], [row["mean"] for row in own]
        axes.errorbar(
            x, y, [row["std"] or 0 for row in own], fmt="o", capsize=2, elinewidth=1, color=colour, label=family
        )
        labels += [(row["name"], (row["predict_ms"], row["mean"]), colour) for row in own]
    times = [row["predict_ms"] for row in rows]
    axes.set_xlim(min(times) / 2, 2 * max(times))  # a single time alone has no width
    lowest, highest = (f(row["mean"] for row in rows) for f in (min, max))
    ticks = [tick for tick in ACCURACY_TICKS if lowest - 10 <= tick <= highest + 0.6]
    axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.yaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set(xlabel="milliseconds per image", ylabel="accuracy, %")
    axes.grid(axis="y", alpha=0.3)
    axes.legend(frameon=False, loc="lower right")
    axes.spines[["top", "right"]].set_visible(False)
    place_labels(axes, labels)
    save_figure(figure, path)


def place_labels(axes: Axes, labels: list[tuple[str, tuple[float, float], str]], size: float = 7) -> None:
    """Write names (text, place, colour) beside their points, each where it covers the least of the others."""
    figure = axes.get_figure()
    assert figure is not None
    figure.draw_without_rendering()  # type: ignore[union-attr]
    points = axes.transData.transform([place for _, place, _ in labels]) * 72 / figure.dpi
    taken = [(x - 4, y - 4, x + 4, y + 4) for x, y in points]
    for (text, place, colour), (x, y) in zip(labels, points, strict=True):
        width, height = 0.58 * size * len(text), 1.1 * size
        candidates = [
            (far, dx, dy)
            for far in (1, 2, 3)
            for dx in (7, -7 - width, -width / 2)
            for dy in (-height / 2, 4 * far, -height - 4 * far)
        ]
        boxes = [(x + dx, y + dy, x + dx + width, y + dy + height) for _, dx, dy in candidates]
        costs = [
            far + sum(_shared(box, other) for other in taken)
            for (far, _, _), box in zip(candidates, boxes, strict=True)
        ]
        best = costs.index(min(costs))
        taken.append(boxes[best])
        axes.annotate(text, place, candidates[best][1:], textcoords="offset points", fontsize=size, color=colour)


def _shared(one: Sequence[float], other: Sequence[float]) -> float:
    """The area that two boxes (left, bottom, right, top) have in common."""
    width, height = (min(one[k + 2], other[k + 2]) - max(one[k], other[k]) for k in (0, 1))
    return max(width, 0.0) * max(height, 0.0)


def history_charts(steps: list[Row], epochs: list[Row], folder: Path) -> list[Path]:
    """Loss of each step, and accuracy of each epoch, of a training run; two files."""
    from matplotlib.ticker import MaxNLocator

    batches = max(int(row["step"]) for row in steps) + 1
    done = [row["epoch"] + 1 for row in epochs]
    paths = []
    for name, label, factor in (("loss", "loss", 1), ("accuracy", "accuracy, %", 100)):
        figure = new_figure(4.8, 3.4)
        axes = figure.subplots()
        x = [row["epoch"] + (row["step"] + 1) / batches for row in steps]
        if name == "loss":
            axes.plot(x, [row["loss"] for row in steps], color=CHART[0], linewidth=0.8, alpha=0.4)
        curves = [(name, "training, augmented", "o-"), (f"validation_{name}", "validation", "s-")]
        for colour, (column, words, marker) in zip(CHART, curves, strict=False):
            if column in epochs[0]:
                axes.plot(done, [factor * row[column] for row in epochs], marker, color=colour, label=words)
        axes.set(xlabel="epoch", ylabel=label)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)
        paths.append(folder / f"{name}.png")
        save_figure(figure, paths[-1])
    return paths
