"""How a raster differs from what its model was trained on: which share is known, and what the rest is like."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch

from mgcap.geo.cells import Place
from mgcap.geo.earth import to_ground
from mgcap.geo.index import Index
from mgcap.geo.opening import open_raster, reading
from mgcap.geo.plan import Plan
from mgcap.geo.raster import read_window
from mgcap.geo.votes import ClassMap
from mgcap.inference.sample import reduce_rows
from mgcap.names import human_names
from mgcap.persistence.files import write_rows
from mgcap.typing import Array

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from mgcap.classifier import SceneClassifier

#: Groups of unknown cells, and training images that are shown beside each.
GROUPS, NEAREST = 8, 5
#: The most unknown cells that are grouped; more are thinned evenly.
MOST = 50_000


@dataclass(frozen=True)
class Typical:
    """The cell that is most like the others of a group of unknown cells.

    Attributes:
        row: Of the map.
        column: Of the map.
        x: Of its middle, in the raster's coordinates.
        y: Of its middle.
        share: The group's share of the area with data.
        distance: From the nearest training image.
        nearest: Numbers of the nearest training images in the model's sample, and their distances.
        classes: What these show.
    """

    row: int
    column: int
    x: float
    y: float
    share: float
    distance: float
    nearest: tuple[tuple[int, float], ...]
    classes: tuple[str, ...]

    def texts(self) -> tuple[str, ...]:
        """The cells of its row in a table."""
        place = f"{self.x:.10g}, {self.y:.10g}"
        like = ", ".join(dict.fromkeys(self.classes))
        return str(self.row), str(self.column), place, f"{100 * self.share:.1f} %", f"{self.distance:.3f}", like


@dataclass(frozen=True)
class Shift:
    """How a raster differs from the training images.

    Attributes:
        known: Share of the cells with data that show what the model knows.
        far: Share that is unlike all training images.
        unsure: Share that is like some of them, but where the model is not confident.
        typical: Unknown cells that stand for many others, those of the largest group first.
    """

    known: float
    far: float
    unsure: float
    typical: list[Typical] = field(default_factory=list)
    columns: ClassVar[tuple[str, ...]] = ("row", "column", "x, y", "stands for", "distance", "nearest training images")

    @property
    def sentence(self) -> str:
        """The shares in words."""
        return (
            f"{100 * self.known:.1f} % of the scene is like the training data; unknown: {100 * self.far:.1f} % is far "
            f"from it, {100 * self.unsure:.1f} % is near, but the model is not confident"
        )


def find_shift(
    classifier: SceneClassifier, found: ClassMap, plan: Plan, place: Place, index: Index | None = None
) -> Shift:
    """Compare a map with the training images of its model.

    Args:
        classifier: The model.
        found: The map.
        plan: Of the map.
        place: Where it lies.
        index: Of the raster; without, no typical cells are found.
    """
    known = found.has_data & ~found.unknown
    total = max(int(found.has_data.sum()), 1)
    far = float((found.unknown & found.far).sum()) / total
    unsure = float((found.unknown & ~found.far).sum()) / total
    shares = float(known.sum()) / total, far, unsure
    if index is None or classifier.sample_ is None:
        return Shift(*shares)
    return Shift(*shares, _typical(classifier, found, plan, place, index))


def _typical(classifier: SceneClassifier, found: ClassMap, plan: Plan, place: Place, index: Index) -> list[Typical]:
    from sklearn.cluster import KMeans

    sample = classifier.sample_
    assert sample is not None
    cells, reduced = _unknown_vectors(classifier, found, plan, index)
    if not len(cells):
        return []
    total = max(int(found.has_data.sum()), 1)
    directions = torch.nn.functional.normalize(reduced - sample.mean, dim=1).numpy()
    count = min(GROUPS, len(np.unique(directions, axis=0)))
    groups = KMeans(count, n_init=3, random_state=0).fit(directions)
    names = human_names([str(name) for name in classifier.classes_])
    typical = []
    for number, centre in enumerate(groups.cluster_centers_):
        members = np.flatnonzero(groups.labels_ == number)
        if not len(members):
            continue
        best = members[(directions[members] @ centre).argmax()]
        distances, nearest = sample.nearest(reduced[best : best + 1], len(sample.vectors))
        pictured = nearest[0] < max(int(sample.pictured), 1)  # whole images, not windows of composed scenes
        pairs = zip(nearest[0][pictured][:NEAREST].tolist(), distances[0][pictured][:NEAREST].tolist(), strict=True)
        shown = tuple(pairs)
        row, column = (int(n) for n in cells[best])
        left, top, right, low = plan.grid.box(row, column)
        ((x, y),) = to_ground(place.transform, np.array([(left + right) / 2]), np.array([(top + low) / 2]))
        share = len(members) / len(cells) * int(found.unknown.sum()) / total
        classes = tuple(names[int(sample.targets[n])] for n, _ in shown)
        typical.append(Typical(row, column, float(x), float(y), share, float(distances[0, 0]), shown, classes))
    return sorted(typical, key=lambda cell: -cell.share)


def _unknown_vectors(
    classifier: SceneClassifier, found: ClassMap, plan: Plan, index: Index
) -> tuple[Array, torch.Tensor]:
    """Unknown cells of a map (row, column), and their reduced descriptors; of a coarser map the middle of each."""
    times = index.plan.cells_in_tile // plan.cells_in_tile
    cells = np.argwhere(found.unknown)
    cells = cells[:: -(-len(cells) // MOST) or 1]
    wanted = {(int(r) * times + times // 2, int(c) * times + times // 2): n for n, (r, c) in enumerate(cells)}
    kept, parts = [], []
    for (rows, columns), part in index.blocks():
        valid = np.argwhere(part.valid > 0)
        inside = [(n, r, c) for r, c in valid if (n := wanted.get((rows.start + r, columns.start + c))) is not None]
        if inside:
            numbers, own_rows, own_columns = (list(values) for values in zip(*inside, strict=True))
            vectors = torch.from_numpy(part.vectors[own_rows, own_columns]).float()
            kept += numbers
            parts.append(reduce_rows(classifier.model_, vectors))
    if not parts:
        return cells[:0], torch.zeros(0, 1)
    return cells[kept], torch.cat(parts)


def write_shift(out: Path, shift: Shift, plan: Plan, place: Place, classifier: SceneClassifier) -> list[Path]:
    """Write typical unknown cells as a table, and as a picture with the training images that are nearest to them."""
    from mgcap.report.charts import save_figure

    table, picture = out.with_suffix(".unknown.csv"), out.with_suffix(".unknown.png")
    rows = [
        {
            "rank": rank, "row": cell.row, "column": cell.column, "x": f"{cell.x:.10g}", "y": f"{cell.y:.10g}",
            "share": f"{cell.share:.6f}", "distance": f"{cell.distance:.6f}",
            "nearest": "; ".join(f"{name} {d:.3f}" for name, (_, d) in zip(cell.classes, cell.nearest, strict=True)),
        }
        for rank, cell in enumerate(shift.typical, 1)
    ]  # fmt: skip
    write_rows(table, rows)
    save_figure(_figure(shift, plan, classifier), picture)
    return [table, picture]


def _figure(shift: Shift, plan: Plan, classifier: SceneClassifier) -> Figure:
    from mgcap.report.charts import new_figure

    assert classifier.sample_ is not None
    pictures = classifier.sample_.pictures()
    count = len(shift.typical)
    figure = new_figure(1.7 * (1 + NEAREST), 1.9 * count + 0.5)
    grid = figure.subplots(count, 1 + NEAREST, squeeze=False)
    for axes in grid.ravel():
        axes.set_axis_off()
    side = plan.cells_in_tile * plan.grid.cell_width, plan.cells_in_tile * plan.grid.cell_height
    with open_raster(plan.raster, plan.allow_vrt) as dataset, reading(plan.raster):
        for cell, row in zip(shift.typical, grid, strict=True):
            left, top, right, low = plan.grid.box(cell.row, cell.column)
            x, y = (
                int(np.clip((a + b) // 2 - s // 2, 0, max(size - s, 0)))
                for a, b, s, size in zip((left, top), (right, low), side, plan.size, strict=True)
            )
            width, height = (min(s, size) for s, size in zip(side, plan.size, strict=True))
            pixels, _ = read_window(dataset, plan.look, x, y, width, height, (160, 160))
            row[0].imshow(pixels.clip(0, 1))
            row[0].set_title(f"unknown, {100 * cell.share:.1f} %", fontsize=9)
            for axes, (number, distance), name in zip(row[1:], cell.nearest, cell.classes, strict=False):
                if pictures is not None:
                    axes.imshow(pictures[number], interpolation="bicubic")
                axes.set_title(f"{name}\n{distance:.2f} away", fontsize=8)
    figure.suptitle("Typical unknown cells (left), and the training images nearest to them", fontsize=11)
    return figure
