"""An empty file of labels: a GeoPackage with the layer of labels, and the table of their history."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from pathlib import Path

from mgcap.geo.geopackage import VERSION

_FIELDS = {
    "class": "U", "number": "i4", "who": "U", "at": "U", "raster": "U", "row": "i4", "col": "i4", "change": "i8",
    "resolves": "i4",
}  # fmt: skip
_TABLES = """
CREATE UNIQUE INDEX labels_cell ON labels (raster, row, col, who);
CREATE TABLE history (id INTEGER PRIMARY KEY AUTOINCREMENT, at TEXT NOT NULL, who TEXT NOT NULL, actor TEXT NOT NULL,
    raster TEXT NOT NULL, row INTEGER NOT NULL, col INTEGER NOT NULL, before INTEGER, after INTEGER,
    kind TEXT NOT NULL, action INTEGER, undoes INTEGER);
CREATE INDEX history_actor ON history (actor, action);
CREATE INDEX history_action ON history (action);
CREATE TRIGGER history_is_kept BEFORE DELETE ON history BEGIN SELECT RAISE(ABORT, 'the history is kept'); END;
CREATE TABLE extents (low_x REAL, low_y REAL, high_x REAL, high_y REAL);
INSERT INTO gpkg_contents (table_name, data_type, identifier, srs_id) VALUES ('history', 'attributes', 'history', 0);
"""


def create_labels(path: Path, crs: str | None) -> None:
    """An empty file of labels, whole or not at all; another process may be faster."""
    import numpy as np
    import pyogrio

    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
        made = Path(folder) / "labels.gpkg"
        pyogrio.raw.write(
            made,
            np.array([], object),
            [np.array([], object if kind == "U" else kind) for kind in _FIELDS.values()],
            list(_FIELDS),
            layer="labels",
            driver="GPKG",
            geometry_type="Polygon",
            crs=crs,
            layer_options={"SPATIAL_INDEX": "NO"},  # its triggers need functions that SQLite alone has not
            dataset_options={"VERSION": VERSION},
        )
        database = sqlite3.connect(made)
        database.executescript(_TABLES)
        database.close()
        try:
            os.link(made, path)
        except FileExistsError:
            return
        except OSError:  # a file system without links
            made.replace(path)
