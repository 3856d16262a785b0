"""Opening a raster so that it is read by itself: no other file, no connection, whatever it says of either.

GDAL follows what a raster names: the sources of a VRT, overviews named in the metadata, sidecars beside the file. A
stranger's raster could thus read any file for him. By default only self-contained kinds of files are opened, each by
its own driver, and nothing beside them; a user who trusts a raster says so with ``allow_vrt``.
"""

from __future__ import annotations

import hashlib
import os
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mgcap.data.limits import MIN_SIDE
from mgcap.errors import RasterError, UntrustedRasterError, missing

if TYPE_CHECKING:
    from rasterio.io import DatasetReader

#: First bytes of the kinds of rasters that are opened, and GDAL's driver for each.
_KINDS = (
    (b"II*\x00", "GTiff"),
    (b"MM\x00*", "GTiff"),
    (b"II+\x00", "GTiff"),
    (b"MM\x00+", "GTiff"),
    (b"\x89PNG\r\n\x1a\n", "PNG"),
    (b"\xff\xd8\xff", "JPEG"),
    (b"\x00\x00\x00\x0cjP  \r\n\x87\n", "JP2OpenJPEG"),
    (b"\xff\x4f\xff\x51", "JP2OpenJPEG"),
)
#: What GDAL may not do with a raster that is not trusted.
_ALONE = {
    "GDAL_DISABLE_READDIR_ON_OPEN": "EMPTY_DIR",  # no sidecars: .ovr, .msk, .tfw
    "GDAL_PAM_ENABLED": "NO",  # no .aux.xml
    "GDAL_GEOREF_SOURCES": "INTERNAL",
    "USE_RRD": "NO",
    "CPL_VSIL_CURL_ALLOWED_EXTENSIONS": ".none",
    "PROJ_NETWORK": "OFF",
}
#: Bytes of a raster's blocks that GDAL keeps; its own default is a share of the machine's memory.
CACHE_BYTES = 256 << 20
#: Suffixes of files beside a raster that say where it lies.
_WORLD_FILES = (".tfw", ".tifw", ".jgw", ".pgw", ".j2w", ".wld", ".aux.xml", ".tab")
#: Words of a coordinate system that names a file or a connection; between them only letters, digits and = count.
_GRIDS = (
    "parameterfile", "proj4grids", "nadgrids", "geoidgrids", "grids=", "proj=pipeline", "gridshift", "tinshift",
    "defmodel", "deformation", "methodproj", "projectionproj",
)  # fmt: skip
#: What a coordinate system may say in the language of PROJ; everything else could name a file.
_PROJ_KEYS = {
    "proj", "zone", "ellps", "datum", "units", "vunits", "to_meter", "vto_meter", "towgs84", "type", "axis", "pm",
    "title", "a", "b", "r", "rf", "f", "es", "k", "k_0", "h", "sweep", "alpha", "gamma", "tilt", "azi", "x_0", "y_0",
    "m", "n", "lat_0", "lat_1", "lat_2", "lat_3", "lat_b", "lat_ts", "lon_0", "lon_1", "lon_2", "lon_3", "lon_wrap",
    "lonc", "o_proj", "o_lat_p", "o_lon_p", "o_alpha", "o_lon_c", "o_lat_c", "geoc", "uv", "path", "lsat",
}  # fmt: skip
#: Tag of a GeoTIFF with the words of its coordinate system.
_GEO_ASCII = 34737
#: Bytes of a box in a JPEG 2000 file.
MAX_BOX_BYTES = 1 << 26
#: Bytes of one block of a raster; GDAL reads blocks as a whole.
MAX_BLOCK_BYTES = 1 << 30


def is_virtual(raster: str | Path) -> bool:
    """Whether a name is one of GDAL's virtual files (``/vsicurl/...``) or an address."""
    return str(raster).startswith("/vsi") or "://" in str(raster)


@contextmanager
def reading(path: str | Path) -> Iterator[None]:
    """Turn the errors of GDAL into one sentence."""
    from rasterio._err import CPLE_BaseError  # what GDAL complains of; some of it comes through as it is
    from rasterio.errors import NotGeoreferencedWarning, RasterioError

    warnings.simplefilter("ignore", NotGeoreferencedWarning)  # for good: to restore filters is not safe among threads
    try:
        yield
    except (RasterioError, CPLE_BaseError) as error:
        # the reason that GDAL gave is the cause; rasterio's own words are "Read failed. See previous exception"
        reason = " ".join(str(error.__cause__ or error).split()) or type(error).__name__
        raise RasterError(f"{path} cannot be read: {reason[:300]}") from error
    except (MemoryError, OverflowError, UnicodeError) as error:
        reason = " ".join(str(error).split()) or "it needs too much memory"
        raise RasterError(f"{path} is damaged: {reason[:300]}") from error


@contextmanager
def open_raster(raster: str | Path, allow_vrt: bool = False, smallest: int = MIN_SIDE) -> Iterator[DatasetReader]:
    """Open a raster, or say in one sentence why that fails.

    Args:
        raster: A file; with ``allow_vrt`` also a virtual file or an address.
        allow_vrt: Open whatever GDAL reads, with all that it names: VRTs, other formats, sidecars, the network.
        smallest: Sides of fewer pixels are refused.
    """
    import rasterio

    virtual = is_virtual(raster)
    if virtual and not allow_vrt:
        raise UntrustedRasterError(f"{raster} is not a plain file")
    path = Path(raster)
    if not virtual:
        _check_file(path)
    driver = None if allow_vrt else _driver(path)
    if driver is not None and any(names_a_file(text) for text in coordinate_texts(path, driver)):
        raise UntrustedRasterError(f"{path} has a coordinate system that names a grid file")
    name = str(raster) if virtual else str(path.resolve())
    cache = {} if "GDAL_CACHEMAX" in os.environ else {"GDAL_CACHEMAX": CACHE_BYTES}
    with rasterio.Env(**cache, **({} if allow_vrt else _ALONE)):
        with reading(path):
            dataset = rasterio.open(name, driver=driver, sharing=False)
        with dataset, reading(path):
            if not allow_vrt:
                _check_alone(dataset, path)
            _check_pixels(dataset, path, smallest)
            yield dataset


def _check_file(path: Path) -> None:
    if path.is_dir():
        raise RasterError(f"{path} is a folder, not a raster")
    if not path.is_file():
        raise RasterError(missing("file", path))
    if path.stat().st_size == 0:
        raise RasterError(f"{path} is empty")


def _driver(path: Path) -> str:
    """GDAL's driver for a self-contained file, by its first bytes."""
    with path.open("rb") as file:
        first = file.read(4096)
    if first[:4] == b"RIFF" and first[8:12] == b"WEBP":
        return "WEBP"
    for start, driver in _KINDS:
        if first.startswith(start):
            return driver
    if b"<VRTDataset" in first or b"<GDAL_WMS" in first or first.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<"):
        raise UntrustedRasterError(f"{path} is a VRT or another file that names its sources")
    raise UntrustedRasterError(
        f"{path} cannot be read: it is not a GeoTIFF, JPEG 2000, PNG, JPEG or WebP file",
        " (`allow_vrt` opens GDAL's other formats, some of which read further files; give it if you trust this one)",
    )


def coordinate_texts(path: Path, driver: str) -> Iterator[str]:
    """What a file says of its coordinate system in words, without GDAL: it opens what they name when they are read."""
    if driver == "GTiff":
        yield from _geotiff_texts(path)
    elif driver == "JP2OpenJPEG":
        yield from _jpeg2000_texts(path)


def _geotiff_texts(path: Path) -> Iterator[str]:
    import tifffile

    try:
        with tifffile.TiffFile(path, is_ndpi=False) as file:  # by its content, whatever its name
            page: Any = file.pages[0]
            for own in page.tags.getall(_GEO_ASCII) or ():
                if not isinstance(own.value, bytes | str):  # GDAL reads numbers as text, too
                    raise ValueError("words of a coordinate system that are no text")
                yield own.value.decode("latin-1") if isinstance(own.value, bytes) else own.value
    except Exception as error:  # whatever it finds wrong, the file is not what it should be
        raise RasterError(f"{path} cannot be read: its header is damaged") from error


def _jpeg2000_texts(path: Path) -> Iterator[str]:
    """All boxes of a JPEG 2000 file but the pictures themselves."""
    size = path.stat().st_size
    with path.open("rb") as file:
        place = 0
        while place + 8 <= size:
            file.seek(place)
            head = file.read(16)
            length, kind = int.from_bytes(head[:4]), head[4:8]
            length = int.from_bytes(head[8:16]) if length == 1 else length or size - place
            if head.startswith(b"\xff\x4f\xff\x51"):  # the picture alone, without boxes
                return
            if kind != b"jp2c":
                file.seek(place)
                yield file.read(min(length, MAX_BOX_BYTES)).decode("latin-1")
            if length < 8 or (length > MAX_BOX_BYTES and kind != b"jp2c"):
                raise RasterError(f"{path} cannot be read: its header is damaged")
            place += length


def _check_alone(dataset: DatasetReader, path: Path) -> None:
    """Refuse what the file itself says about other files; GDAL would follow it when it looks for overviews."""
    spaces = {space.upper() for space in dataset.tag_namespaces()}
    if "OVERVIEWS" in spaces or dataset.tags(ns="OVERVIEWS"):
        raise UntrustedRasterError(f"{path} names another file for its overviews")
    if dataset.crs is not None and names_a_file(dataset.crs.to_wkt()):
        raise UntrustedRasterError(f"{path} has a coordinate system that names a grid file")


@lru_cache(maxsize=64)
def crs_of_words(wkt: str, path: str | Path) -> Any:
    """The coordinate system that a file of ours says its raster has, None if that had none.

    Raises:
        RasterError: If it is damaged, or could make PROJ open something.
    """
    import rasterio
    from rasterio.errors import CRSError

    if not wkt:
        return None
    if names_a_file(wkt):
        raise UntrustedRasterError(f"{path} has a coordinate system that names a grid file", "")
    try:
        return rasterio.CRS.from_wkt(wkt)
    except CRSError as error:
        raise RasterError(f"the coordinate system of {path} is not understood") from error


def names_a_file(text: str) -> bool:
    """Whether a coordinate system, or what one is made of, could make PROJ open something."""
    text = re.sub(r'[+]?nadgrids=@null(?=[ "])', "", text.lower())  # web maps (EPSG:3857) say so that they need none
    proj = " ".join(re.findall(r"extension\W+proj4\W+?[\"\u201c]([^\"\u201d]*)", text))
    keys = {*re.findall(r"[+]\s*([\w.]+)\s*=", text), *re.findall(r"([\w.]+)\s*=", proj)}
    plain = re.sub(r"[^a-z0-9=]", "", text)
    return any(word in plain for word in _GRIDS) or not keys <= _PROJ_KEYS


def _check_pixels(dataset: DatasetReader, path: Path, smallest: int) -> None:
    if min(dataset.width, dataset.height) < smallest:
        raise RasterError(
            f"{path} is {dataset.width} x {dataset.height} pixels; at least {smallest} x {smallest} are needed"
        )
    if dataset.count == 0:
        raise RasterError(f"{path} has no bands")
    for dtype in set(dataset.dtypes):
        if dtype not in _DTYPES:
            raise RasterError(f"{path} has pixels of type {dtype}, which is not an image")
    bands = dataset.count if dataset.interleaving and dataset.interleaving.name.lower() == "pixel" else 1
    height, width = (max(sides) for sides in zip(*dataset.block_shapes, strict=True))
    size = height * width * bands * max(np.dtype(dtype).itemsize for dtype in dataset.dtypes)
    if size > MAX_BLOCK_BYTES:
        raise RasterError(
            f"{path} is made of blocks of {width} x {height} pixels, {size / 1e9:.1f} GB each; write it with smaller "
            "ones, as gdal_translate -co TILED=YES does"
        )


_DTYPES = {np.dtype(kind).name for kind in ("u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8")}


def file_state(raster: str | Path) -> tuple[int, int]:
    """When a raster was last changed and its length; zeros for what is not a file of this machine."""
    if is_virtual(raster):
        return 0, 0
    state = os.stat(raster)  # noqa: PTH116 (a name may be either)
    return state.st_mtime_ns, state.st_size


def sources_state(dataset: Any) -> str:
    """A fingerprint of names, dates and lengths of the other files that a raster is read from; empty if there are none.

    Those that VRTs name count, and those that these name in turn. Not so the statistics that viewers write beside
    a raster.
    """
    import rasterio

    states: dict[str, tuple[int, int]] = {}

    def look(files: Sequence[str]) -> None:
        for name in files:
            if name in states or name.endswith(".aux.xml"):
                continue
            states[name] = file_state(name) if is_virtual(name) or Path(name).is_file() else (0, 0)
            if name.lower().endswith(".vrt"):
                with rasterio.open(name, sharing=False) as inner:
                    look(inner.files[1:])

    look(dataset.files[1:])
    return hashlib.sha256(repr(sorted(states.items())).encode()).hexdigest() if states else ""


def ignored_place(dataset: Any, path: str | Path, allow_vrt: bool) -> str | None:
    """A file beside a raster that would say where it lies, if the raster does not and the file is not read."""
    if allow_vrt or is_virtual(path) or dataset.crs is not None or not dataset.transform.is_identity:
        return None
    own = Path(path)
    for suffix in _WORLD_FILES:
        for beside in (own.with_suffix(suffix), own.with_name(own.name + suffix)):
            if beside.is_file():
                return f"{own.name} does not say where it lies, and {beside.name} is not read without `allow_vrt`"
    return None
