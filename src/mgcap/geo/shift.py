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
from mgcap.report.sheets import INK, PAPER, fitted, font, picture, save_picture
from mgcap.typing import Array

if TYPE_CHECKING:
    from PIL.Image import Image
    from rasterio.io import DatasetReader

    from mgcap.classifier import SceneClassifier

#: Groups of unknown cells, and training images that are shown beside each.
GROUPS, NEAREST = 8, 5
#: The most unknown cells that are grouped; more are thinned evenly.
MOST = 50_000
#: Side of a picture, and height of the letters above it, in pixels.
SIDE, WORDS = 230, 16


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
            f"{100 * self.known:.1f} % of the cells are like the training data; unknown: {100 * self.far:.1f} % is far "
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
    from scipy.cluster.vq import kmeans2  # a small part of what scikit-learn would load

    sample = classifier.sample_
    assert sample is not None
    cells, reduced = _unknown_vectors(classifier, found, plan, index)
    if not len(cells):
        return []
    total = max(int(found.has_data.sum()), 1)
    directions = torch.nn.functional.normalize(reduced - sample.mean, dim=1).numpy()
    count = min(GROUPS, len(np.unique(directions, axis=0)))
    centres, groups = kmeans2(directions, count, iter=30, minit="++", missing="warn", seed=0)
    names = human_names([str(name) for name in classifier.classes_])
    typical = []
    for number, centre in enumerate(centres):
        members = np.flatnonzero(groups == number)
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
    table, drawn = out.with_suffix(".unknown.csv"), out.with_suffix(".unknown.png")
    rows = [
        {
            "rank": rank, "row": cell.row, "column": cell.column, "x": f"{cell.x:.10g}", "y": f"{cell.y:.10g}",
            "share": f"{cell.share:.6f}", "distance": f"{cell.distance:.6f}",
            "nearest": "; ".join(f"{name} {d:.3f}" for name, (_, d) in zip(cell.classes, cell.nearest, strict=True)),
        }
        for rank, cell in enumerate(shift.typical, 1)
    ]  # fmt: skip
    write_rows(table, rows)
    save_picture(_sheet(shift, plan, classifier), drawn)
    return [table, drawn]


def _sheet(shift: Shift, plan: Plan, classifier: SceneClassifier) -> Image:
    """Rows of pictures with words above them: a typical cell, and the training images that are nearest to it."""
    from PIL import Image, ImageDraw

    assert classifier.sample_ is not None
    pictures = classifier.sample_.pictures()
    line, gap, title = round(1.4 * WORDS), WORDS, 2 * WORDS
    across, down = SIDE + gap, SIDE + 2 * line + round(1.5 * gap)
    sheet = Image.new("RGB", (gap + (1 + NEAREST) * across, 2 * title + len(shift.typical) * down), PAPER)
    draw = ImageDraw.Draw(sheet)
    heading = "Typical unknown cells (left), and the training images nearest to them"
    draw.text((sheet.width / 2, title), heading, INK, font(round(1.3 * WORDS)), "mm")

    def show(row: int, column: int, words: tuple[str, str], pixels: Array | None) -> None:
        left, top = gap + column * across, 2 * title + row * down
        for number, text in enumerate(words):
            place = left + SIDE / 2, top + (number + 0.5) * line
            draw.text(place, fitted(text, SIDE, WORDS), INK, font(WORDS), "mm")
        if pixels is not None:
            sheet.paste(picture(pixels, SIDE), (left, top + 2 * line + gap // 4))

    with open_raster(plan.raster, plan.allow_vrt) as dataset, reading(plan.raster):
        for row, cell in enumerate(shift.typical):
            show(row, 0, ("unknown", f"{100 * cell.share:.1f} %"), _surroundings(dataset, plan, cell))
            for column, ((number, distance), name) in enumerate(zip(cell.nearest, cell.classes, strict=True), 1):
                own = None if pictures is None else pictures[number]
                show(row, column, (name, f"{distance:.2f} away"), own)
    return sheet


def _surroundings(dataset: DatasetReader, plan: Plan, cell: Typical) -> Array:
    """The tile around a cell, as the model saw it."""
    left, top, right, low = plan.grid.box(cell.row, cell.column)
    side = plan.cells_in_tile * plan.grid.cell_width, plan.cells_in_tile * plan.grid.cell_height
    x, y = (
        int(np.clip((a + b) // 2 - s // 2, 0, max(size - s, 0)))
        for a, b, s, size in zip((left, top), (right, low), side, plan.size, strict=True)
    )
    width, height = (min(s, size) for s, size in zip(side, plan.size, strict=True))
    return read_window(dataset, plan.look, x, y, width, height, (SIDE, SIDE))[0]
