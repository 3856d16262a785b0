"""Every colour of maps, charts, explanations and the service's answers."""

from __future__ import annotations

import colorsys
import re
from collections.abc import Sequence

#: Curves and bars, which colour-blind people can tell apart (Okabe and Ito).
CHART = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
#: What is not in question.
GREY = "#b8c2cc"
#: Outlines of the granularities: blue, yellow and green as in the paper, then others.
OUTLINES = ("#1f6fd6", "#f2c100", "#1a9c4a", "#d55e00", "#cc79a7", "#56b4e9")
#: Matplotlib's name of what heat looks like.
HEAT = "inferno"
#: By what a name begins with or contains, the first that fits.
_EXPECTED = (
    ("^unknown$", GREY),
    ("mobile", "#c03b83"), ("water|sea|lake|ocean|river", "#2b7bba"), ("harbo", "#08306b"), ("ferry|port$", "#3f5aa8"),
    ("beach|coast|sand|shore", "#f6e27f"), ("forest|wood", "#1b6e2d"), ("chaparral|shrub|wetland", "#8fae5d"),
    ("agri|farm|crop|field|orchard", "#b8d16b"), ("golf|park$|grass|meadow|pasture", "#7fd37f"),
    ("tennis", "#c1622e"), ("baseball|stadium|playground|court", "#d9a066"),
    ("dense", "#8e1a1a"), ("medium", "#cf3f3f"), ("sparse", "#f2a0a0"),
    ("building|commercial|industrial", "#6d4a8d"), ("residential", "#d94f4f"), ("storage|tank", "#5f6b73"),
    ("parking", "#a7a7a7"), ("freeway|highway|road", "#4d4d4d"), ("intersection", "#7a5c3c"),
    ("overpass|bridge|viaduct", "#a5794a"), ("runway|airport", "#e08214"), ("airplane|aircraft", "#fdb863"),
    ("mountain|rock|bare|desert", "#b9a58a"), ("snow|ice|cloud", "#e8f1f8"), ("railway|station", "#444a6d"),
)  # fmt: skip


def outline(number: int) -> str:
    """The colour of a granularity."""
    return OUTLINES[number % len(OUTLINES)]


def class_colours(classes: Sequence[str]) -> list[str]:
    """A colour ``#rrggbb`` for each class: what people expect of water, woods and roofs, distinct ones for the rest.

    They are all different, and the same for the same list of classes.
    """
    taken: list[str] = []
    for number, name in enumerate(classes):
        plain = re.sub(r"[^a-z]", "", name.lower())
        colour = next((colour for pattern, colour in _EXPECTED if re.search(pattern, plain)), None)
        step = number
        while colour is None or colour in taken:
            red, green, blue = colorsys.hls_to_rgb(step * 0.618034 % 1, (0.42, 0.58, 0.72)[step % 3], 0.65)
            colour = f"#{round(255 * red):02x}{round(255 * green):02x}{round(255 * blue):02x}"
            step += 1
        taken.append(colour)
    return taken


def rgb(colour: str) -> tuple[int, int, int]:
    """Red, green and blue from 0 to 255."""
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)
