"""One HTML file without any outside part: numbers, charts, an interactive confusion matrix and the images behind it."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
from PIL import Image

from mgcap.data.images import read_image
from mgcap.errors import ImageError
from mgcap.persistence.files import atomic_path

#: Images in a report, and their side in pixels.
THUMBNAILS, THUMBNAIL_SIDE = 400, 128
HARDEST = 12

_environment = jinja2.Environment(
    loader=jinja2.PackageLoader("mgcap.report", ""), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True
)


def render(template: str, **values: Any) -> str:
    """A template of this folder, filled in."""
    return _environment.get_template(template).render(**values)


def data_uri(kind: str, content: bytes) -> str:
    """A picture of that kind (png, jpeg) as a data URI."""
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


def thumbnail(path: Path) -> str | None:
    """A small picture of an image as a data URI; None if it cannot be read."""
    try:
        pixels = read_image(path)
    except ImageError:
        return None
    return pixels_uri(pixels.permute(1, 2, 0).numpy(), THUMBNAIL_SIDE, 80)


def pixels_uri(pixels: Any, side: int, quality: int) -> str:
    """An image ``[h, w, 3]`` in [0, 1] as a data URI, its longer side no longer than ``side`` pixels."""
    picture = Image.fromarray((pixels * 255).round().astype("uint8"))
    picture.thumbnail((side, side))
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=quality)
    return data_uri("jpeg", buffer.getvalue())


def picture_uri(figure: Any, dpi: int = 90) -> str:
    """A matplotlib figure as a data URI."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi)
    return data_uri("png", buffer.getvalue())


def write_gallery(
    path: Path,
    title: str,
    subtitle: str,
    sections: Sequence[dict[str, Any]],
    *,
    points: dict[str, Any] | None = None,
    command: str = "",
    card_width: str = "26rem",
) -> None:
    """Write a page of pictures.

    Args:
        path: The HTML file.
        title: What it shows.
        subtitle: Of what.
        sections: Each with ``title``, ``text``, ``cards`` (of ``title``, ``data`` and perhaps ``link``) and ``table``
            (of ``columns`` and ``rows``); what is empty is left out.
        points: An interactive map: ``text``, ``classes``, ``colours`` and ``dots``, each x in [0, 100], y in [0, 70],
            the class, a name, a picture or None, and the class that was predicted or -1.
        command: How to repeat it.
        card_width: The least width of a card.
    """
    empty = {"text": "", "cards": (), "table": None}
    full = [{**empty, **s, "cards": [{"link": None, **card} for card in s.get("cards", ())]} for s in sections]
    html = render(
        "gallery.html.j2",
        title=title,
        subtitle=subtitle,
        sections=full,
        points=points,
        command=command,
        card_width=card_width,
    )
    with atomic_path(path) as temporary:
        temporary.write_text(html, encoding="utf-8")


def chart(title: str, path: Path) -> dict[str, str]:
    """A PNG to stand in the page."""
    return {"title": title, "data": data_uri("png", path.read_bytes())}


def in_words(config: dict[str, Any]) -> str:
    """The main values of a configuration."""
    granularities = ", ".join(f"{g:g}" for g in config["granularities"])
    rotations = f"{config['rotations']} rotation" + ("s" if config["rotations"] > 1 else "")
    return (
        f"{config['backbone']} {config['layer']}, granularities {granularities}, {rotations}, {config['normalisation']}"
    )


def spread(mean: float, std: float | None, sign: str = "\N{PLUS-MINUS SIGN}") -> str:
    """A mean in percent with its standard deviation, if there is one."""
    return f"{mean:.2f}" + ("" if std is None else f" {sign} {std:.2f}")


def shade(confusion: Sequence[Sequence[int]]) -> Any:
    """What gives the colour of a cell of a confusion matrix, by its value, row and column."""

    def colour(value: int, row: int, column: int) -> str:
        if not value:
            return "none"
        share = 100 * value / max(1, sum(confusion[row]))
        tone = "--blue" if row == column else "--red"
        return f"color-mix(in srgb, var({tone}) {min(90, 12 + share):.0f}%, transparent)"

    return colour


def _collected(wrong: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Mistakes of several runs, each image and answer once, with how often and how confident at most."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for item in wrong:
        entry = found.setdefault((item["path"], item["predicted"]), {**item, "times": 0})
        entry["times"] += 1
        entry["probability"] = max(entry["probability"], item["probability"])
    return sorted(found.values(), key=lambda item: -float(item["probability"]))


@dataclass(frozen=True)
class Page:
    """A report.

    Attributes:
        title: What was done.
        subtitle: On what.
        command: How to repeat it.
        details: Configuration and versions, shown as JSON.
        headline: The one number.
        headline_note: What it means.
        tables: Each with ``title``, ``columns`` and ``rows``, and perhaps ``ours``, the numbers of rows to stand out.
        charts: What :func:`chart` gave.
        summary: With ``classes``, ``per_class_accuracy`` and ``confusion``.
        wrong: Mistakes with ``path``, ``truth``, ``predicted`` and ``probability``.
        root: The folder that the paths of mistakes lie below.
    """

    title: str
    subtitle: str
    command: str
    details: Any
    headline: str = ""
    headline_note: str = ""
    tables: Sequence[dict[str, Any]] = ()
    charts: Sequence[dict[str, str]] = ()
    summary: Mapping[str, Any] | None = None
    wrong: Sequence[dict[str, Any]] = ()
    root: Path | None = None

    def write(self, path: Path) -> None:
        """Write the HTML file."""
        mistakes = _collected(self.wrong)
        thumbnails = self._thumbnails(mistakes)
        classes = list(self.summary["classes"]) if self.summary else []
        cells: dict[str, list[dict[str, Any]]] = {}
        for item in mistakes:
            key = f"{classes.index(item['truth'])},{classes.index(item['predicted'])}" if classes else ""
            cells.setdefault(key, []).append(item)
        confusion = self.summary["confusion"] if self.summary else []
        accuracies = self.summary["per_class_accuracy"].items() if self.summary else ()
        known = [(name, value) for name, value in accuracies if value == value]  # not NaN
        html = render(
            "page.html.j2",
            title=self.title,
            subtitle=self.subtitle,
            command=self.command,
            details=json.dumps(self.details, indent=1),
            headline=self.headline,
            headline_note=self.headline_note,
            tables=self.tables,
            charts=self.charts,
            per_class=sorted(known, key=lambda pair: pair[1]),
            classes=classes,
            confusion=confusion,
            shade=shade(confusion),
            wrong=cells,
            thumbnails=thumbnails,
            hardest=[item for item in mistakes if item["path"] in thumbnails][:HARDEST],
        )
        with atomic_path(path) as temporary:
            temporary.write_text(html, encoding="utf-8")

    def _thumbnails(self, mistakes: Sequence[dict[str, Any]]) -> dict[str, str]:
        """Pictures of mistakes, the first of them, by path."""
        found: dict[str, str] = {}
        for item in mistakes:
            if self.root is None or len(found) >= THUMBNAILS:
                break
            if item["path"] not in found and (picture := thumbnail(self.root / item["path"])):
                found[item["path"]] = picture
        return found
