"""Explanations of many images as files: a figure for each and one page for all."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mgcap.errors import ImageError
from mgcap.explain.explanation import Explanation, class_index, explain_image
from mgcap.explain.scan import model_fingerprint
from mgcap.persistence.cache import content_key
from mgcap.persistence.files import write_json
from mgcap.report.charts import save_figure
from mgcap.report.page import picture_uri, write_gallery
from mgcap.runtime import Progress, silent

if TYPE_CHECKING:
    from mgcap.classifier import SceneClassifier

Row = dict[str, Any]

#: Formats of a figure.
FORMATS = ("png", "svg")


def file_names(files: Sequence[Path]) -> list[str]:
    """A name for each file: its stem, with a hash of its path where stems repeat."""
    stems = Counter(path.stem for path in files)

    def name(path: Path) -> str:
        suffix = hashlib.sha256(str(path).encode()).hexdigest()[:6]
        return path.stem if stems[path.stem] == 1 else f"{path.stem}-{suffix}"

    return [name(path) for path in files]


def explain_files(
    classifier: SceneClassifier,
    files: Sequence[Path],
    out: Path,
    target: str | None = None,
    contrast: str | None = None,
    progress: Progress = silent,
) -> list[Row]:
    """Write figures and numbers of images; existing ones are kept.

    Args:
        classifier: Fitted.
        files: Images; one that cannot be read gets a row with its error.
        out: The folder.
        target: See :func:`mgcap.explain.explanation.explain_image`.
        contrast: The same.
        progress: Where to report.

    Returns:
        For each image its path, class, probability, angles and files, or its error.
    """
    classes = [str(name) for name in classifier.classes_]
    for name in (target, contrast):
        if name is not None:
            class_index(classes, name)
    fingerprint = model_fingerprint(classifier)
    rows: list[Row] = []
    with progress("Explaining", len(files)) as step:
        for path, name in zip(files, file_names(files), strict=True):
            key = content_key(path)
            wanted = {"model": fingerprint, "image": key.hex() if key else "", "class": target, "against": contrast}
            rows.append(_kept(out, name, wanted) or _explained(classifier, path, out, name, wanted))
            step(1)
    return rows


def _kept(out: Path, name: str, wanted: dict[str, Any]) -> Row | None:
    """The row of an image that was explained before in the same way."""
    try:
        row: Row = json.loads((out / f"{name}.json").read_text())
    except (OSError, ValueError):
        return None
    kept = row.get("fingerprint", row.get("identity"))  # as earlier versions called it
    complete = all((out / f"{name}.{form}").exists() for form in FORMATS)
    return row if complete and kept == wanted else None


def _explained(classifier: SceneClassifier, path: Path, out: Path, name: str, wanted: dict[str, Any]) -> Row:
    try:
        found = explain_image(classifier, path, wanted["class"], wanted["against"])
    except ImageError as error:
        return {"path": str(path), "error": str(error)}
    figure = found.figure()
    for form in FORMATS:
        save_figure(figure, out / f"{name}.{form}")
    row = {"fingerprint": wanted, "name": name, **_numbers(path, found), "picture": picture_uri(figure, 60)}
    write_json(out / f"{name}.json", row)
    return row


def _numbers(path: Path, found: Explanation) -> Row:
    return {
        "path": str(path),
        "class": found.top()[0][0],
        "probability": found.top()[0][1],
        "explained": found.target,
        "against": found.contrast,
        "top": found.top(),
        "granularities": list(found.granularities),
        "angles": found.angles.tolist(),
        "votes": found.votes.round(6).tolist(),
        "error": None,
    }


def write_image_gallery(path: Path, rows: Sequence[Row], model: str, command: str) -> None:
    """One page for all images."""
    good = [row for row in rows if not row["error"]]
    sections: list[dict[str, Any]] = [
        {
            "title": "Images",
            "text": "Each picture leads to its figure in full size.",
            "cards": [
                {
                    "title": f"{Path(row['path']).name}: {row['class']} ({row['probability']:.3f})",
                    "data": row["picture"],
                    "link": f"{row['name']}.svg",
                }
                for row in good
            ],
        }
    ]
    bad = [(row["path"], row["error"]) for row in rows if row["error"]]
    if bad:
        sections.append({"title": "Not read", "table": {"columns": ("file", "error"), "rows": bad}})
    subtitle = (
        f"{len(good)} images by {model}: canonical appearances, votes of the rotations, and the evidence for the class"
    )
    write_gallery(path, "Why?", subtitle, sections, command=command)
