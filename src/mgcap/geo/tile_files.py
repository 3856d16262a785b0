"""The image of one tile, with where it lies."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mgcap.typing import Array

if TYPE_CHECKING:
    from rasterio.io import DatasetReader

#: Suffixes of tiles, and of the world files beside them.
FORMATS = {"tif": "", "png": ".pgw", "jpg": ".jgw"}
#: Of JPEG files.
QUALITY = 95


def write_raster(
    path: Path, dataset: DatasetReader, box: tuple[int, int, int, int], bands: Sequence[int], pixels: Array | None
) -> None:
    """Write a window of a raster as a GeoTIFF.

    Args:
        path: The file.
        dataset: The raster.
        box: Left, top, width and height in pixels.
        bands: To write.
        pixels: ``[h, w, c]`` to write in their place; by default the values are kept as they are.
    """
    import rasterio
    from rasterio.enums import ColorInterp
    from rasterio.windows import Window

    left, top, width, height = box
    palette = None
    profile: dict[str, Any] = {}
    if pixels is None:
        dtype = np.result_type(*(dataset.dtypes[band - 1] for band in bands))
        values = dataset.read(list(bands), window=Window(left, top, width, height), out_dtype=dtype)
        profile["nodata"] = dataset.nodata
        if dataset.colorinterp[bands[0] - 1] == ColorInterp.palette and len(bands) == 1:
            palette = dataset.colormap(bands[0])
    else:
        values = np.moveaxis(pixels, -1, 0)
    if len(values) == 3 and values.dtype in (np.uint8, np.uint16):
        profile["photometric"] = "RGB"
    t = dataset.transform
    place = type(t)(t.a, t.b, t.a * left + t.b * top + t.c, t.d, t.e, t.d * left + t.e * top + t.f)
    with rasterio.open(
        path, "w", driver="GTiff", width=width, height=height, count=len(values), dtype=values.dtype, crs=dataset.crs,
        transform=place, compress="deflate", **profile,
    ) as tile:  # fmt: skip
        tile.write(values)
        if palette is not None:
            tile.write_colormap(1, palette)


def write_picture(path: Path, pixels: Array, transform: Any, corner: tuple[int, int], crs: Any) -> None:
    """Write bytes ``[h, w, 3]`` as PNG or JPEG, with a world file and the coordinate system beside them.

    Args:
        path: The file.
        pixels: To write.
        transform: Of the raster.
        corner: Left and top in the raster.
        crs: Of the raster; None if it does not say.
    """
    from PIL import Image

    if path.suffix == ".jpg":
        Image.fromarray(pixels).save(path, quality=QUALITY, subsampling=0)
    else:
        Image.fromarray(pixels).save(path)
    if not transform.is_identity:
        t = transform
        x, y = corner[0] + 0.5, corner[1] + 0.5  # the middle of the first pixel
        lines = (t.a, t.d, t.b, t.e, t.a * x + t.b * y + t.c, t.d * x + t.e * y + t.f)
        path.with_suffix(FORMATS[path.suffix[1:]]).write_text("".join(f"{float(v)!r}\n" for v in lines))
    if crs is not None:
        path.with_suffix(".prj").write_text(crs.to_wkt(version="WKT1_ESRI") + "\n", encoding="utf-8")
