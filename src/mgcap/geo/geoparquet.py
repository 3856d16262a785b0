"""Tables with geometries as GeoParquet 1.1, written part by part."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mgcap.typing import Array

#: Of the format.
VERSION = "1.1.0"


def write_geoparquet(path: Path, tables: Iterable[tuple[Array, dict[str, Any]]], crs: Any) -> None:
    """Write tables as the row groups of one file.

    Args:
        path: The file.
        tables: Polygons in the coordinates of ``crs``, with their columns: arrays of numpy or pyarrow.
        crs: A coordinate system of rasterio, or None.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq
    import shapely

    metadata = {"geo": json.dumps(_metadata(crs))}
    writer: Any = None
    try:
        for shapes, columns in tables:
            values = {"geometry": pa.array(shapely.to_wkb(shapes), pa.binary())}
            for name, column in columns.items():
                values[name] = column if isinstance(column, pa.Array) else pa.array(column, from_pandas=True)  # no NaN
            table = pa.table(values)
            if writer is None:
                writer = pq.ParquetWriter(path, table.schema.with_metadata(metadata), compression="zstd")
            writer.write_table(table.cast(writer.schema))
    finally:
        if writer is not None:
            writer.close()


def _metadata(crs: Any) -> dict[str, Any]:
    from pyproj import CRS

    column = {
        "encoding": "WKB",
        "geometry_types": ["Polygon"],
        "crs": CRS.from_wkt(crs.to_wkt()).to_json_dict() if crs else None,
    }
    return {"version": VERSION, "primary_column": "geometry", "columns": {"geometry": column}}
