"""Crafted files, each with what must happen: ``python -m tests.attacks.craft FOLDER`` writes them all.

A case makes its files in a folder of its own and names the one that a victim opens. ``expected`` is the beginning of
the sentence that must come (as a regular expression), or None where the file must be read, and read by itself.
"""

from __future__ import annotations

import json
import struct
import sys
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import rasterio
import tifffile
from PIL import Image
from rasterio.transform import from_origin

from tests.data.files import grey_tiff, png_chunk

#: Brightness of what the attacker may see, and of what he may not.
OWN, SECRET = 10, 200
PLACE = {"crs": "EPSG:25832", "transform": from_origin(500_000, 5_600_000, 0.3, 0.3)}


@dataclass(frozen=True)
class Case:
    """One attack."""

    name: str
    kind: str  #: image, raster or bundle
    make: Callable[[Path], Path]
    expected: str | None


def write_raster(path: Path, value: int, side: int = 256, bands: int = 3, **profile: Any) -> Path:
    """A raster of one value."""
    given = {"driver": "GTiff", "count": bands, "height": side, "width": side, "dtype": "uint8", **PLACE, **profile}
    with rasterio.open(path, "w", **given) as dataset:
        dataset.write(np.full((bands, side, side), value, given["dtype"]))
    return path


def good_rasters(folder: Path) -> list[Path]:
    """Small rasters of several kinds."""
    rng = np.random.default_rng(0)
    kinds: dict[str, dict[str, Any]] = {
        "plain": {}, "tiled": {"tiled": True, "blockxsize": 16, "blockysize": 16, "compress": "deflate"},
        "lzw": {"compress": "lzw", "predictor": 2}, "jpeg": {"compress": "jpeg"}, "nodata": {"nodata": 3},
        "packbits": {"compress": "packbits", "interleave": "band"}, "big": {"BIGTIFF": "YES"},
        "deep": {"dtype": "uint16"}, "float": {"dtype": "float32", "nodata": float("nan")},
    }  # fmt: skip
    for name, profile in kinds.items():
        given = {"driver": "GTiff", "count": 3, "height": 40, "width": 48, "dtype": "uint8", **PLACE, **profile}
        with rasterio.open(folder / f"{name}.tif", "w", **given) as dataset:
            dataset.write(rng.integers(1, 255, (3, 40, 48)).astype(given["dtype"]))
            dataset.update_tags(note="made for a test")
            dataset.build_overviews([2])
    return sorted(folder.glob("*.tif"))


def vrt(source: str, side: int = 128) -> str:
    """A VRT that shows another file."""
    bands = "".join(
        f'<VRTRasterBand dataType="Byte" band="{band}"><SimpleSource><SourceFilename relativeToVRT="0">{source}'
        f'</SourceFilename><SourceBand>{band}</SourceBand><SrcRect xOff="0" yOff="0" xSize="256" ySize="256"/>'
        f'<DstRect xOff="0" yOff="0" xSize="{side}" ySize="{side}"/></SimpleSource></VRTRasterBand>'
        for band in (1, 2, 3)
    )
    return f'<VRTDataset rasterXSize="{side}" rasterYSize="{side}">{bands}</VRTDataset>'


def _raw_vrt(source: str) -> str:
    return (
        '<VRTDataset rasterXSize="64" rasterYSize="64"><VRTRasterBand dataType="Byte" band="1" '
        f'subClass="VRTRawRasterBand"><SourceFilename relativetoVRT="0">{source}</SourceFilename>'
        "<ImageOffset>0</ImageOffset><PixelOffset>1</PixelOffset><LineOffset>64</LineOffset></VRTRasterBand></VRTDataset>"
    )


def _secret(folder: Path) -> str:
    return str(write_raster(folder / "secret.tif", SECRET))


def _overview(named: Callable[[str], str], domain: str = "OVERVIEWS", key: str = "OVERVIEW_FILE") -> Any:
    def make(folder: Path) -> Path:
        path = write_raster(folder / "evil.tif", OWN)
        with rasterio.open(path, "r+") as dataset:
            dataset.update_tags(ns=domain, **{key: named(_secret(folder))})
        return path

    return make


def _written(name: str, text: Callable[[str], str | bytes]) -> Any:
    def make(folder: Path) -> Path:
        content = text(_secret(folder))
        path = folder / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return make


def _beside(name: str, make_other: Callable[[Path, Path], None]) -> Any:
    def make(folder: Path) -> Path:
        path = write_raster(folder / "scene.tif", OWN)
        make_other(folder, folder / name)
        return path

    return make


def _aux(folder: Path, path: Path) -> None:
    path.write_text(
        f"<PAMDataset><Metadata domain='OVERVIEWS'><MDI key='OVERVIEW_FILE'>{_secret(folder)}</MDI></Metadata>"
        f"<PAMRasterBand band='1'><NoDataValue>{OWN}</NoDataValue></PAMRasterBand></PAMDataset>"
    )


def _rrd(folder: Path, path: Path) -> None:
    path.write_bytes(b"EHFA_HEADER_TAG")


def _other(side: int, bands: int = 3) -> Callable[[Path, Path], None]:
    def make(folder: Path, path: Path) -> None:
        write_raster(path, SECRET, side, bands)

    return make


TRUST = "`allow_vrt`"
RASTERS = [
    Case("overview-file", "raster", _overview(str), "names another file"),
    Case("overview-inline-vrt", "raster", _overview(vrt), "names another file"),
    Case("overview-inline-raw-vrt", "raster", _overview(lambda s: _raw_vrt("/etc/passwd")), "names another file"),
    Case("overview-curl", "raster", _overview(lambda s: "/vsicurl/http://127.0.0.1:9/x.tif"), "names another file"),
    Case("overview-base", "raster", _overview(lambda s: ":::BASE:::secret.tif"), "names another file"),
    Case("overview-small-letters", "raster", _overview(str, "overviews", "overview_file"), "names another file"),
    Case("vrt", "raster", _written("scene.vrt", vrt), TRUST),
    Case("vrt-called-tif", "raster", _written("scene.tif", vrt), TRUST),
    Case("vrt-after-a-mark", "raster", _written("scene.tif", lambda s: "\ufeff  \n" + vrt(s)), TRUST),
    Case("vrt-after-a-comment", "raster", _written("scene.tif", lambda s: f"<!-- {'x' * 5000} -->" + vrt(s)), TRUST),
    Case("raw-vrt", "raster", _written("scene.tif", lambda s: _raw_vrt("/etc/passwd")), TRUST),
    Case(
        "wms", "raster",
        _written("scene.tif", lambda s: "<GDAL_WMS><Service><ServerUrl>http://127.0.0.1:9</ServerUrl></Service></GDAL_WMS>"),
        TRUST,
    ),
    Case("envi", "raster", _written("scene.hdr", lambda s: "ENVI\nsamples = 64\nlines = 64\nbands = 1"), "cannot be"),
    Case("text", "raster", _written("scene.tif", lambda s: "II, said the crab"), "cannot be read"),
    Case("zarr-name", "raster", lambda folder: Path(f'ZARR:"{folder}"'), "there is no file"),
    Case("subdataset-name", "raster", lambda folder: Path(f"GTIFF_DIR:1:{_secret(folder)}"), "there is no file"),
    Case("vsi-name", "raster", lambda folder: Path(f"/vsisubfile/0,{_secret(folder)}"), TRUST),
    Case("aux-xml", "raster", _beside("scene.tif.aux.xml", _aux), None),
    Case("ovr", "raster", _beside("scene.tif.ovr", _other(128)), None),
    Case("msk", "raster", _beside("scene.tif.msk", _other(256, 1)), None),
    Case("rrd", "raster", _beside("scene.aux", _rrd), None),
]  # fmt: skip


def _png_bomb(folder: Path) -> Path:
    header = png_chunk(b"IHDR", struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0))
    path = folder / "bomb.png"
    body = png_chunk(b"IDAT", zlib.compress(bytes(1000))) + png_chunk(b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + header + body)
    return path


def _bytes(name: str, content: bytes) -> Any:
    def make(folder: Path) -> Path:
        (folder / name).write_bytes(content)
        return folder / name

    return make


def _float(value: float) -> Any:
    def make(folder: Path) -> Path:
        tifffile.imwrite(folder / "f.tif", np.full((16, 16, 3), value, np.float32), photometric="rgb")
        return folder / "f.tif"

    return make


def _renamed(name: str, form: str) -> Any:
    def make(folder: Path) -> Path:
        Image.new("RGB", (16, 16)).save(folder / name, form)
        return folder / name

    return make


IMAGES = [
    Case("empty", "image", _bytes("a.jpg", b""), "empty"),
    Case("tiff-depth", "image", _bytes("a.tif", grey_tiff(64, 64, more={32997: (4, 500_000)})), "."),
    Case("tiff-many-samples", "image", _bytes("a.tif", grey_tiff(64, 64, more={277: (3, 65_535)})), "."),
    Case("tiff-wide", "image", _bytes("a.tif", grey_tiff(2_000_000_000, 1000)), "."),
    Case(
        "tiff-huge-tile", "image",
        _bytes("a.tif", grey_tiff(10, 10, more={322: (4, 65_520), 323: (4, 65_520), 324: (4, 8), 325: (4, 100)})), ".",
    ),
    Case("png-bomb", "image", _png_bomb, "."),
    Case("eps-as-png", "image", _renamed("a.png", "EPS"), "."),
    Case("gif-as-jpg", "image", _renamed("a.jpg", "GIF"), "."),
    Case("pdf-as-tif", "image", _renamed("a.tif", "PDF"), "."),
    Case("psd", "image", _bytes("a.png", b"8BPS\x00\x01" + bytes(100)), "."),
    Case("fits", "image", _bytes("a.tif", b"SIMPLE  =                    T" + bytes(3000)), "."),
    Case("float-nodata", "image", _float(3.4e38), "3.4"),
    Case("float-negative", "image", _float(-5.0), "."),
    Case("float-nan", "image", _float(float("nan")), "no finite"),
    Case("too-small", "image", _bytes("a.tif", grey_tiff(1, 1)), "."),
]  # fmt: skip


def reheaded(data: bytes, change: Callable[[dict[str, Any]], Any]) -> bytes:
    """A model file with another header and a digest that fits it."""
    from tests.attacks.targets import resealed

    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    own = json.loads(header["__metadata__"]["mgcap"])
    changed = change(own)
    header["__metadata__"]["mgcap"] = json.dumps(own if changed is None else changed)
    packed = json.dumps(header).encode()
    made = struct.pack("<Q", len(packed)) + packed + data[8 + length :]
    try:
        return resealed(made)
    except (AttributeError, TypeError, RecursionError):
        return made


def _bundle(change: Callable[[dict[str, Any]], Any]) -> Any:
    def make(folder: Path) -> Path:
        from tests.attacks.targets import good_bundle

        path = folder / "model.mgcap"
        path.write_bytes(reheaded(good_bundle(), change))
        return path

    return make


def _set(*names: str, value: Any) -> Any:
    def change(header: dict[str, Any]) -> None:
        for name in names[:-1]:
            header = header[name]
        header[names[-1]] = value

    return _bundle(change)


def _deep(folder: Path) -> Path:
    text = '{"a":' * 100_000 + "1" + "}" * 100_000
    packed = json.dumps({"__metadata__": {"mgcap": text}}).encode()
    path = folder / "model.mgcap"
    path.write_bytes(struct.pack("<Q", len(packed)) + packed)
    return path


BUNDLES = [
    Case("version-negative", "bundle", _set("format_version", value=-1), "."),
    Case("version-true", "bundle", _set("format_version", value=True), "."),
    Case("version-new", "bundle", _set("format_version", value=99), "newer mgcap"),
    Case("classes-twice", "bundle", _bundle(lambda h: h.update(classes=[h["classes"][0]] * 2)), "."),
    Case("classes-numbers", "bundle", _set("classes", value=[1, 2]), "."),
    Case("classes-text", "bundle", _set("classes", value="ab"), "."),
    Case("classes-few", "bundle", _set("classes", value=["one"]), "."),
    Case("config-huge", "bundle", _set("config", "size", value=1_000_000), "."),
    Case("config-rotations", "bundle", _set("config", "rotations", value=10**9), "."),
    Case("config-other-backbone", "bundle", _set("config", "backbone", value="vgg16"), "."),
    Case("config-infinite", "bundle", _set("config", "ridge", value=float("inf")), "."),
    Case("config-list", "bundle", _set("config", value=[]), "."),
    Case("metrics-list", "bundle", _set("metrics", value=[1]), "."),
    Case("imagery-text", "bundle", _set("imagery", value={"side": "wide"}), "."),
    Case("backbone-null", "bundle", _set("backbone", value=None), "."),
    Case("header-list", "bundle", _bundle(lambda h: []), "."),
    Case("header-deep", "bundle", _deep, "."),
    Case("not-a-model", "bundle", _bytes("model.mgcap", b"\x80\x04cos\nsystem\n(S'true'\ntR."), "."),
    Case("header-longer-than-the-file", "bundle", _bytes("model.mgcap", struct.pack("<Q", 1 << 62) + b"{}"), "."),
]  # fmt: skip

CASES = RASTERS + IMAGES + BUNDLES


def main(folder: Path) -> None:
    """Write every case, and a list of what must happen."""
    rows = []
    for case in CASES:
        own = folder / case.kind / case.name
        own.mkdir(parents=True, exist_ok=True)
        rows.append({"case": case.name, "kind": case.kind, "open": str(case.make(own)), "expected": case.expected})
    (folder / "cases.json").write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
