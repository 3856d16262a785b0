"""Polygons as GeoJSON: one feature per line, in degrees as the format wants it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from mgcap.typing import Array


def write_geojson(path: Path, layer: str, tables: Iterable[tuple[Iterable[Any], dict[str, Array]]]) -> None:
    """Write features.

    Args:
        path: The file.
        layer: Name of the collection.
        tables: Geometries as :func:`mgcap.geo.rings.outlines` makes them, with their columns.
    """
    with path.open("w", encoding="utf-8") as file:
        file.write(f'{{"type": "FeatureCollection", "name": "{layer}", "features": [')
        first = True
        for shapes, columns in tables:
            for number, shape in enumerate(shapes):
                values = {name: _plain(column[number]) for name, column in columns.items()}
                feature = {"type": "Feature", "properties": values, "geometry": shape}
                file.write(("" if first else ",") + "\n" + json.dumps(feature, ensure_ascii=False, allow_nan=False))
                first = False
        file.write("\n]}\n")


def _plain(value: Any) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(value, float) and not math.isfinite(value) else value
