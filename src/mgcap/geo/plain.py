"""A stranger's raster to a plain copy of what a map needs of it, so that only the copy is opened later."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mgcap.errors import RasterError
from mgcap.geo.opening import open_raster, reading
from mgcap.geo.raster import choose_bands, guessed_bands

if TYPE_CHECKING:
    from rasterio.io import DatasetReader

#: Sides of the windows that are copied one after the other; a multiple of the copy's tiles.
WINDOW = 2048
#: Bytes of a copy for each pixel that is allowed.
COPY_BYTES = 4


def copy_plain(source: Path, target: Path, bands: Sequence[int] | None, max_pixels: int) -> list[str]:
    """Write the bands that show something, where they lie and what is missing; no other metadata.

    Args:
        source: Any raster that :func:`mgcap.geo.opening.open_raster` opens without trust.
        target: A GeoTIFF to write.
        bands: Of red, green and blue, if the user said so.
        max_pixels: More are refused.

    Returns:
        Sentences on what was assumed of the raster, which the copy no longer shows.
    """
    import rasterio
    from rasterio.enums import ColorInterp, MaskFlags
    from rasterio.windows import Window

    with open_raster(source) as dataset, reading(source):
        if dataset.width * dataset.height > max_pixels:
            raise RasterError(
                f"the raster is {dataset.width} x {dataset.height} pixels; {max_pixels / 1e6:g} million are allowed"
            )
        meaning = list(dataset.colorinterp)
        depth = max(np.dtype(kind).itemsize for kind in dataset.dtypes)
        if dataset.width * dataset.height * min(dataset.count, 4) * depth > COPY_BYTES * max_pixels:
            raise RasterError(
                f"the raster has {dataset.width} x {dataset.height} pixels of {depth} bytes; "
                f"{COPY_BYTES * max_pixels / 1e9:g} GB of pixels are allowed"
            )
        alpha = [meaning.index(ColorInterp.alpha) + 1] if ColorInterp.alpha in meaning else []
        chosen = [*choose_bands(dataset, bands), *alpha]
        profile = _profile(dataset, chosen)
        with rasterio.Env(GDAL_TIFF_INTERNAL_MASK=True), rasterio.open(target, "w", **profile) as copy:
            copy.colorinterp = _meaning(dataset, chosen, bool(alpha))
            if meaning[chosen[0] - 1] == ColorInterp.palette:
                copy.write_colormap(1, dataset.colormap(chosen[0]))
            masked = not alpha and MaskFlags.per_dataset in dataset.mask_flag_enums[chosen[0] - 1]
            for y in range(0, dataset.height, WINDOW):
                for x in range(0, dataset.width, WINDOW):
                    window = Window(x, y, min(WINDOW, dataset.width - x), min(WINDOW, dataset.height - y))
                    copy.write(dataset.read(chosen, window=window), window=window)
                    if masked:
                        copy.write_mask(dataset.dataset_mask(window=window), window=window)
        guess = guessed_bands(dataset, bands)
        return [f"The raster {guess}. If the map looks wrong, name the bands, as 3,2,1."] if guess else []


def _profile(dataset: DatasetReader, chosen: Sequence[int]) -> dict[str, Any]:
    depth = np.dtype(dataset.dtypes[chosen[0] - 1]).itemsize
    large = dataset.width * dataset.height * len(chosen) * depth > 3e8  # a small file can say that it is large
    return {
        "driver": "GTiff", "width": dataset.width, "height": dataset.height, "count": len(chosen),
        "dtype": dataset.dtypes[chosen[0] - 1], "nodata": dataset.nodatavals[chosen[0] - 1],
        "crs": dataset.crs, "transform": dataset.transform,
        "tiled": True, "blockxsize": 256, "blockysize": 256, "bigtiff": "IF_SAFER",
        **({"compress": "deflate", "zlevel": 1} if large else {}),
    }  # fmt: skip


def _meaning(dataset: DatasetReader, chosen: Sequence[int], alpha: bool) -> list[Any]:
    from rasterio.enums import ColorInterp

    data = len(chosen) - alpha
    first = dataset.colorinterp[chosen[0] - 1]
    single = ColorInterp.palette if first == ColorInterp.palette else ColorInterp.gray
    colours = [single] if data == 1 else [ColorInterp.red, ColorInterp.green, ColorInterp.blue]
    return colours + [ColorInterp.alpha] * alpha
