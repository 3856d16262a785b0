"""A raster as the model wants to see it: red, green and blue in [0, 1], by windows, with what is missing marked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mgcap.errors import RasterError
from mgcap.typing import Array

if TYPE_CHECKING:
    from rasterio.io import DatasetReader

    from mgcap.data.imagery import Imagery


#: Pixels that are looked at to judge the values of a raster.
SAMPLE_SIDE = 1024
#: Percentiles that ``scale="percentiles"`` sets to black and white.
PERCENTILES = (2.0, 98.0)


def choose_bands(dataset: DatasetReader, wanted: Sequence[int] | None = None) -> tuple[int, ...]:
    """The numbers of the red, green and blue band, or of the only one."""
    from rasterio.enums import ColorInterp

    if wanted:
        if len(wanted) not in (1, 3) or not all(1 <= band <= dataset.count for band in wanted):
            raise RasterError(
                f"`bands` takes one or three numbers from 1 to {dataset.count}, red first, as 4,3,2; "
                f"not {','.join(map(str, wanted))}"
            )
        return tuple(wanted)
    meaning = list(dataset.colorinterp)
    colours = (ColorInterp.red, ColorInterp.green, ColorInterp.blue)
    if all(colour in meaning for colour in colours):
        return tuple(meaning.index(colour) + 1 for colour in colours)
    data = [number for number, kind in enumerate(meaning, 1) if kind != ColorInterp.alpha]
    if len(data) in (1, 3) or (len(data) == 4 and dataset.count == 4):
        return tuple(data[:3])
    raise RasterError(
        f"{dataset.name} has {dataset.count} bands and does not say which are red, green and blue; "
        "say it with `bands`, as `bands=4,3,2`"
    )


def guessed_bands(dataset: DatasetReader, wanted: Sequence[int] | None = None) -> str | None:
    """Words on which bands are taken, if nobody says which are red, green and blue; how to say so is up to others."""
    from rasterio.enums import ColorInterp

    chosen = choose_bands(dataset, wanted)
    if wanted or len(chosen) < 3 or dataset.colorinterp[chosen[0] - 1] == ColorInterp.red:
        return None
    return (
        f"does not say which of its {dataset.count} bands are red, green and blue; bands "
        f"{', '.join(map(str, chosen))} are taken in this order"
    )


@dataclass(frozen=True)
class Look:
    """How to read a raster: its bands, and the values that are black and white."""

    bands: tuple[int, ...]
    black: float
    white: float


def choose_look(dataset: DatasetReader, imagery: Imagery, bands: Sequence[int] | None, scale: str) -> Look:
    """Bands and scale for a model, or one sentence on why the raster does not fit.

    Args:
        dataset: The raster.
        imagery: What the model was trained on.
        bands: Numbers of the red, green and blue band, if the user gave them.
        scale: ``auto`` (as in training, if the pixels are of the same kind), ``percentiles`` or ``BLACK,WHITE``.
    """
    chosen = choose_bands(dataset, bands)
    if scale == "percentiles":
        values = _sample(dataset, chosen)
        black, white = (float(v) for v in np.percentile(values, PERCENTILES))
        if not black < white:
            raise RasterError(f"{dataset.name} has the same value everywhere, so it cannot be stretched")
        return Look(chosen, black, white)
    if scale != "auto":
        return Look(chosen, *_two_numbers(scale))
    dtype = np.dtype(dataset.dtypes[chosen[0] - 1]).name
    hint = "say what is black and white with `scale`, as `scale=0,3000`, or `scale=percentiles`"
    if dtype != imagery.dtype:
        raise RasterError(
            f"{dataset.name} has {dtype} pixels, but the model was trained on {imagery.dtype} ones; {hint}"
        )
    if dtype != "uint8":
        largest = float(_sample(dataset, chosen).max())
        if not imagery.white / 16 <= largest <= imagery.white:
            raise RasterError(
                f"{dataset.name} has values up to {largest:g}, but white was {imagery.white:g} in training; {hint}"
            )
    return Look(chosen, 0.0, imagery.white)


def _two_numbers(scale: str) -> tuple[float, float]:
    try:
        black, white = (float(part) for part in scale.split(","))
    except ValueError:
        raise RasterError(f"`scale` takes auto, percentiles or BLACK,WHITE, not '{scale}'") from None
    if not (np.isfinite(black) and np.isfinite(white) and black < white):
        raise RasterError(f"`scale`: black must be less than white, not {scale}")
    return black, white


def _sample(dataset: DatasetReader, bands: Sequence[int]) -> Array:
    """Valid values of a raster that was thinned out."""
    shrink = max(1.0, max(dataset.width, dataset.height) / SAMPLE_SIDE)
    shape = (max(1, round(dataset.height / shrink)), max(1, round(dataset.width / shrink)))
    values = dataset.read(list(bands), out_shape=(len(bands), *shape))
    valid = _valid(dataset, shape) & np.isfinite(values).all(0)
    if not valid.any():
        raise RasterError(f"{dataset.name} has no valid pixel")
    kept: Array = values[:, valid]
    return kept


def _valid(dataset: DatasetReader, shape: tuple[int, int], window: Any = None) -> Array:
    """Which pixels have data by nodata value, mask or alpha band."""
    from rasterio.enums import ColorInterp

    valid: Array = dataset.dataset_mask(window=window, out_shape=shape) > 0
    if ColorInterp.alpha in dataset.colorinterp:  # GDAL heeds it for bytes only
        alpha = dataset.read(dataset.colorinterp.index(ColorInterp.alpha) + 1, window=window, out_shape=shape)
        valid = valid & (alpha > 0)
    return valid


def read_window(
    dataset: DatasetReader, look: Look, x: int, y: int, width: int, height: int, shape: tuple[int, int]
) -> tuple[Array, Array]:
    """Pixels of a window, resampled to ``shape`` (rows, columns): RGB ``[h, w, 3]`` in [0, 1], and which are valid.

    What is not valid (nodata, mask, alpha, NaN) gets the mean colour of the rest.
    """
    from rasterio.enums import ColorInterp, Resampling
    from rasterio.windows import Window

    window = Window(x, y, width, height)
    palette = dataset.colorinterp[look.bands[0] - 1] == ColorInterp.palette
    smaller = shape[0] < height or shape[1] < width
    method = Resampling.nearest if palette else (Resampling.average if smaller else Resampling.bilinear)
    values = dataset.read(list(look.bands), window=window, out_shape=(len(look.bands), *shape), resampling=method)
    valid = _valid(dataset, shape, window)
    if palette:
        table = np.zeros((256, 3), np.uint8)
        for number, colour in dataset.colormap(look.bands[0]).items():
            table[number] = colour[:3]
        pixels = table[values[0].astype(np.uint8)].astype(np.float32) / 255
    else:
        valid = valid & np.isfinite(values).all(0)
        wide = np.float64 if values.dtype == np.float64 else np.float32
        pixels = (np.moveaxis(values, 0, -1).astype(wide) - look.black) / (look.white - look.black)
        pixels = np.repeat(pixels, 3, -1) if pixels.shape[-1] == 1 else pixels
    if not valid.all():
        pixels[~valid] = pixels[valid].mean(0) if valid.any() else 0.5
    return pixels.clip(0, 1).astype(np.float32), valid
