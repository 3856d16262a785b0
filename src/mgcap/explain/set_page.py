"""A whole set of images on one page: poses, confusions, neighbours, faithfulness, the map of descriptors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mgcap.data.folders import SceneFolder
from mgcap.data.splits import Split
from mgcap.errors import DataError
from mgcap.explain import sets
from mgcap.explain.faithfulness import measure, randomised_weights
from mgcap.explain.scan import Scan, scan_images
from mgcap.report.page import write_gallery
from mgcap.runtime import Progress, silent

if TYPE_CHECKING:
    from mgcap.classifier import SceneClassifier


@dataclass(frozen=True)
class Wanted:
    """What a page shows of a set.

    Attributes:
        split: Neighbours are from its training images, confusions and faithfulness from its test images; all images are
            both by default.
        files: Images whose neighbours are shown.
        nearest: How many neighbours of each.
        flat: Map of the descriptors: ``tsne``, ``pca`` or ``none``.
        faithfulness: Images on which deletion and insertion are measured.
        seed: Of the map, and of the choice of those images.
    """

    split: Split | None = None
    files: Sequence[Path] = ()
    nearest: int = 0
    flat: str = "tsne"
    faithfulness: int = 0
    seed: int = 0


@dataclass
class SetPage:
    """A page that was written.

    Attributes:
        page: The HTML file.
        means: Figures of the poses, means of the classes.
        faithfulness: For each kind of heat map the mean areas under the curves of deletion and insertion.
        skipped: Why images could not be read.
    """

    page: Path
    means: dict[str, float] = field(default_factory=dict)
    faithfulness: dict[str, dict[str, float]] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)


def write_set_page(
    classifier: SceneClassifier,
    folder: SceneFolder,
    out: Path,
    wanted: Wanted | None = None,
    *,
    model: str = "model",
    command: str = "",
    progress: Progress = silent,
) -> SetPage:
    """Write ``dataset.html``; what was computed before is kept in the folder ``scan``.

    Args:
        classifier: Fitted.
        folder: The set.
        out: The folder for the page.
        wanted: What it shows.
        model: What the model is called.
        command: How to repeat it.
        progress: Where to report.

    Raises:
        DataError: If none of the images can be read.
    """
    wanted = wanted or Wanted()
    done = SetPage(out / "dataset.html")
    everything = tuple(range(len(folder)))
    sides = wanted.split or Split(everything, everything)
    classes = [str(name) for name in classifier.classes_]
    config = classifier.model_.config
    scan = scan_images(classifier, folder.paths, lambda i, e: done.skipped.append(str(e)), out / "scan", progress)
    if not len(scan.index):
        raise DataError(f"none of the images in {folder.root} could be read")
    sections, done.means = sets.pose_sections(folder, scan, config, classes, out, progress)
    test = scan.only(sides.test)
    sections += sets.confusion_sections(folder, test, config, classes)
    if wanted.nearest and wanted.files:
        queries = scan_images(classifier, wanted.files, lambda i, error: None, out / "scan", progress)
        known = scan.only(sides.train)
        sections += sets.neighbour_section(wanted.files, queries, folder, known, min(wanted.nearest, len(known.index)))
    if wanted.faithfulness:
        found, done.faithfulness = _faithfulness(classifier, folder, test, wanted, out, progress)
        sections += found
    points = None if wanted.flat == "none" else sets.descriptor_map(folder, scan, classes, wanted.flat, wanted.seed)
    subtitle = f"{len(scan.index)} images of {len(set(folder.labels))} classes by {model}"
    title = f"Poses of {folder.root.name}"
    write_gallery(done.page, title, subtitle, sections, points=points, command=command)
    return done


def _faithfulness(
    classifier: SceneClassifier, folder: SceneFolder, test: Scan, wanted: Wanted, out: Path, progress: Progress
) -> tuple[list[dict[str, Any]], dict[str, dict[str, float]]]:
    chosen = np.random.default_rng(wanted.seed).permutation(test.index)[: wanted.faithfulness]
    items = [folder.paths[int(i)] for i in chosen]
    rows, curves = measure(classifier, items, wanted.seed, progress)
    random = randomised_weights(classifier, items[:10], wanted.seed)
    areas = {
        name: {
            kind: float(np.mean([row[kind] for row in rows if row["map"] == name]))
            for kind in ("deletion", "insertion")
        }
        for name in curves
    }
    return sets.faithfulness_section(rows, curves, random, out), areas
