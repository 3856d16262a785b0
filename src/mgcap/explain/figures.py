"""The figure of one explained image."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mgcap.report.charts import new_figure
from mgcap.report.colours import CHART, GREY, HEAT, outline

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from mgcap.explain.explanation import Explanation

#: How much of the image shows through a heat map.
COVER = 0.55
_TITLES = {"gradcam": "Grad-CAM", "gradcam++": "Grad-CAM++", "local": "local contribution"}


def overlay(axes: Axes, image: Any, heat: Any, title: str) -> None:
    """An image with a heat map on it."""
    axes.imshow(image)
    axes.imshow(heat, cmap=HEAT, vmin=0, vmax=1, alpha=np.clip(heat, 0, 1) ** 0.5 * COVER + 0.1)
    axes.set_title(title, fontsize=9)
    axes.axis("off")


def rose(axes: Any, angles: Any, votes: Any, colour: str) -> None:
    """Votes over the rotations, north up and clockwise, as the image is rotated."""
    width = 2 * np.pi / len(angles)
    winner = int(np.argmax(votes))
    shades = [colour if r == winner else GREY for r in range(len(angles))]
    axes.bar(np.radians(angles), votes, width=0.9 * width, color=shades)
    axes.set_theta_zero_location("N")
    axes.set_theta_direction(-1)
    axes.set_xticks(np.radians([0, 90, 180, 270]))
    axes.tick_params(labelsize=7, pad=-2)
    axes.set_yticks([])


def explanation_figure(found: Explanation) -> Figure:
    """The input with outlines and heat, the top-5, and the canonical appearance, heat and votes of each granularity."""
    from matplotlib.patches import Rectangle

    count = len(found.granularities)
    figure = new_figure(11.5, 2.9 * (count + 1))
    grid = figure.add_gridspec(count + 1, 4)
    axes = figure.add_subplot(grid[0, 0])
    axes.imshow(found.image)
    for number, box in enumerate(found.boxes):
        size = (box.right - box.left - 1, box.bottom - box.top - 1)
        axes.add_patch(
            Rectangle((box.left, box.top), *size, fill=False, edgecolor=outline(number), linewidth=2, linestyle="--")
        )
    axes.set_title("input and what each granularity sees", fontsize=9)
    axes.axis("off")
    for place, method in enumerate(("gradcam", "gradcam++"), start=1):
        overlay(figure.add_subplot(grid[0, place]), found.image, found.heat[method], f"{_TITLES[method]}, on the input")
    bars = figure.add_subplot(grid[0, 3])
    names, values = zip(*found.top()[::-1], strict=True)
    bars.barh(names, values, color=[CHART[0] if name == found.target else GREY for name in names])
    for y, value in enumerate(values):
        within = value > 0.8  # a long bar has its number inside
        place, side, colour = (value - 0.02, "right", "white") if within else (value + 0.02, "left", "black")
        bars.text(place, y, f"{value:.3f}", va="center", ha=side, color=colour, fontsize=8)
    bars.set_xlim(0, 1)
    bars.tick_params(labelsize=8)
    against = f" and not {found.contrast}" if found.contrast else ""
    bars.set_title(f"why {found.target}{against}", fontsize=9)
    bars.spines[["top", "right"]].set_visible(False)
    for number in range(count):
        colour = outline(number)
        view = figure.add_subplot(grid[number + 1, 0])
        view.imshow(found.views[number])
        view.set_title(
            f"granularity {found.granularities[number]:g}: canonical at {found.angles[number]:g}\N{DEGREE SIGN}",
            fontsize=9,
        )
        view.set_xticks([])
        view.set_yticks([])
        for spine in view.spines.values():
            spine.set(edgecolor=colour, linewidth=2, linestyle="--")
        for place, method in enumerate(("gradcam", "gradcam++"), start=1):
            overlay(
                figure.add_subplot(grid[number + 1, place]),
                found.views[number],
                found.view_heat[method][number],
                f"{_TITLES[method]}, canonical view",
            )
        roses = figure.add_subplot(grid[number + 1, 3], projection="polar")
        rose(roses, np.array(found.rotations), found.votes[number], colour)
        roses.set_title(f"votes, {100 * found.votes[number].max():.0f} % for the winner", fontsize=9)
    return figure
