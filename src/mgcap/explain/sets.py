"""The page of a whole set: poses of the classes, confusions, neighbours, the map of descriptors, faithfulness."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from mgcap.config import MGCAPConfig
from mgcap.data.folders import SceneFolder
from mgcap.data.stream import to_tensor
from mgcap.explain.dataset import ClassPose, class_poses, confused_pairs, pose
from mgcap.explain.figures import rose
from mgcap.explain.neighbours import nearest, plane
from mgcap.explain.scan import Scan
from mgcap.persistence.files import write_rows
from mgcap.report.charts import new_figure
from mgcap.report.colours import CHART, class_colours
from mgcap.report.page import picture_uri, thumbnail
from mgcap.runtime import Progress, silent

Section = dict[str, Any]

#: Pictures in the map of descriptors.
PICTURES = 600


def pose_sections(
    folder: SceneFolder, scan: Scan, config: MGCAPConfig, classes: Sequence[str], out: Path, progress: Progress = silent
) -> tuple[list[Section], dict[str, float]]:
    """How each class is oriented, as sections of a page and a CSV; and the means over the classes."""
    poses = class_poses(folder, scan, config, classes, progress)
    columns = [f.name for f in fields(ClassPose) if f.name not in ("angles", "mean_before", "mean_after")]
    write_rows(out / "classes.csv", [{name: getattr(own, name) for name in columns} for own in poses])
    means = {name: float(np.nanmean([getattr(own, name) for own in poses])) for name in columns[2:]}
    rows = [(own.name, own.images, *(f"{getattr(own, name):.3f}" for name in columns[2:])) for own in poses]
    rows.append(("mean of the classes", sum(own.images for own in poses), *(f"{v:.3f}" for v in means.values())))
    text = (
        "Circular variance of the dominant orientations (0: all alike) and sharpness of the mean image (1: all the "
        "same), as the images are and in canonical pose. Concentration: the share of the votes that the winner has."
    )
    table = {"columns": [name.replace("_", " ") for name in columns], "rows": rows}
    cards = [
        {"title": f"{own.name}, {own.images} images", "data": picture_uri(_pose_figure(own, config))} for own in poses
    ]
    return [
        {"title": "How the classes are oriented", "text": text, "table": table},
        {"title": "Mean images: as they are, and in canonical pose", "cards": cards},
    ], means


def _pose_figure(own: ClassPose, config: MGCAPConfig) -> Any:
    figure = new_figure(6.6, 2.3)
    grid = figure.add_gridspec(1, 3)
    shown = ((own.mean_before, "as they are", own.sharpness_before), (own.mean_after, "canonical", own.sharpness_after))
    for place, (image, title, sharp) in enumerate(shown):
        axes = figure.add_subplot(grid[0, place])
        axes.imshow(image)
        axes.set_title(f"{title} ({sharp:.2f})", fontsize=9)
        axes.axis("off")
    roses = figure.add_subplot(grid[0, 2], projection="polar")
    rose(roses, np.array(config.angles), own.angles, CHART[0])
    roses.set_title("canonical angles", fontsize=9)
    return figure


def confusion_sections(
    folder: SceneFolder, scan: Scan, config: MGCAPConfig, classes: Sequence[str], examples: int = 4
) -> list[Section]:
    """The classes that are confused most, with examples in canonical pose."""
    cards = []
    for truth, answer, rows in confused_pairs(folder, scan, classes):
        right = [
            row
            for row, index in enumerate(scan.index.tolist())
            if folder.labels[index] == answer == classes[int(scan.probabilities[row].argmax())]
        ]
        figure = new_figure(6.6, 3.6)
        grid = figure.subplots(2, examples, squeeze=False)
        for line, (members, title) in enumerate(((rows, f"{truth}, called {answer}"), (right, f"{answer}, called so"))):
            for place, axes in enumerate(grid[line]):
                axes.axis("off")
                if place < len(members):
                    row = members[place]
                    image = to_tensor(folder.paths[int(scan.index[row])])
                    axes.imshow(pose(image, float(scan.angles[row, 0]), config))
                    axes.set_title(f"{scan.probabilities[row].max():.2f}", fontsize=8)
            words = grid[line][0].text(0, 1.28, title, transform=grid[line][0].transAxes, fontsize=9)
            words.set_in_layout(False)  # a long title must not widen the first column
        cards.append({"title": f"{truth} called {answer}: {len(rows)} times", "data": picture_uri(figure)})
    text = "Above the mistakes, below images of the other class that were right; all in canonical pose."
    return [{"title": "Most confused classes", "text": text, "cards": cards}] if cards else []


def neighbour_section(
    files: Sequence[Path], queries: Scan, folder: SceneFolder, scan: Scan, count: int
) -> list[Section]:
    """For each image the nearest images of the set."""
    order, cosines = nearest(queries.descriptors, scan.descriptors, count)
    cards = []
    for row, index in enumerate(queries.index.tolist()):
        figure = new_figure(1.7 * (count + 1), 2.1)
        axes = figure.subplots(1, count + 1)
        axes[0].imshow(to_tensor(files[index]).permute(1, 2, 0).numpy())
        axes[0].set_title("the image", fontsize=8, color=CHART[1])
        for place, (near, cosine) in enumerate(zip(order[row], cosines[row], strict=True), start=1):
            other = int(scan.index[near])
            axes[place].imshow(to_tensor(folder.paths[other]).permute(1, 2, 0).numpy())
            axes[place].set_title(f"{folder.labels[other]}\n{cosine:.3f}", fontsize=8)
        for own in axes:
            own.axis("off")
        cards.append({"title": files[index].name, "data": picture_uri(figure)})
    text = "By the cosine of their descriptors."
    return [{"title": f"Nearest images in {folder.root.name}", "text": text, "cards": cards}]


def descriptor_map(
    folder: SceneFolder, scan: Scan, classes: Sequence[str], method: str, seed: int = 0
) -> dict[str, Any]:
    """The interactive map of all descriptors."""
    flat = plane(scan.descriptors, method, seed)
    names = sorted(set(folder.labels) | set(classes))
    answers = scan.probabilities.argmax(1)
    dots = []
    every = max(1, -(-len(flat) // PICTURES))
    for row, index in enumerate(scan.index.tolist()):
        picture = thumbnail(folder.paths[index]) if row % every == 0 else None
        x, y = float(2 + 96 * flat[row, 0]), float(2 + 66 * flat[row, 1])
        label, answer = names.index(folder.labels[index]), names.index(classes[int(answers[row])])
        dots.append((round(x, 2), round(y, 2), label, folder.relative(folder.paths[index]), picture, answer))
    words = "t-SNE of the first 50 principal components." if method == "tsne" else "The first two principal components."
    return {"text": words, "classes": names, "colours": class_colours(names), "dots": dots}


def faithfulness_section(
    rows: Sequence[dict[str, Any]], curves: dict[str, dict[str, Any]], sanity: dict[str, float], out: Path
) -> list[Section]:
    """Deletion and insertion of each kind of map, as a section and a CSV."""
    write_rows(out / "faithfulness.csv", rows)
    figure = new_figure(8, 3.4)
    for axes, kind in zip(figure.subplots(1, 2), ("deletion", "insertion"), strict=True):
        for colour, (name, own) in zip(CHART, curves.items(), strict=False):
            axes.plot(np.linspace(0, 1, len(own[kind])), own[kind], color=colour, label=name)
        axes.set(xlabel="share of the pixels", ylabel="probability of the class", title=kind)
        axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8)
    table = []
    for name in curves:
        chosen = [row for row in rows if row["map"] == name]
        areas = [f"{np.mean([row[kind] for row in chosen]):.3f}" for kind in ("deletion", "insertion")]
        table.append((name, *areas, f"{sanity[name]:.3f}" if name in sanity else "-"))
    images = len({row["image"] for row in rows})
    text = (
        f"Mean areas under the curves of {images} images: a map is faithful if deleting its hottest pixels soon takes "
        "the class away (small) and inserting them soon brings it back (large). The last column is the rank "
        "correlation with the map of a network with random weights: near 0 means that the map shows the model and not "
        "just the image."
    )
    columns = ("map", "deletion", "insertion", "like random weights")
    return [
        {
            "title": "Are the heat maps faithful?",
            "text": text,
            "table": {"columns": columns, "rows": table},
            "cards": [{"title": "mean curves", "data": picture_uri(figure)}],
        }
    ]
