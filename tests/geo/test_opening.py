"""A raster is read by itself: whatever it names, no other file's pixels come in."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import rasterio
import tifffile
from rasterio.transform import from_origin

from mgcap.errors import RasterError
from mgcap.geo import opening
from mgcap.geo.opening import names_a_file, open_raster

PLACE = {"crs": "EPSG:25832", "transform": from_origin(500_000, 5_600_000, 0.3, 0.3)}
SECRET, OWN = 200, 10


def _write(path: Path, value: int, **profile: object) -> Path:
    size = {"count": 3, "height": 256, "width": 256, "dtype": "uint8", "driver": "GTiff", **PLACE, **profile}
    with rasterio.open(path, "w", **size) as dataset:
        dataset.write(np.full((size["count"], 256, 256), value, size["dtype"]))
    return path


def _vrt(source: str) -> str:
    bands = "".join(
        f'<VRTRasterBand dataType="Byte" band="{band}"><SimpleSource><SourceFilename relativeToVRT="0">{source}'
        f'</SourceFilename><SourceBand>{band}</SourceBand><SrcRect xOff="0" yOff="0" xSize="256" ySize="256"/>'
        '<DstRect xOff="0" yOff="0" xSize="128" ySize="128"/></SimpleSource></VRTRasterBand>'
        for band in (1, 2, 3)
    )
    return f'<VRTDataset rasterXSize="128" rasterYSize="128">{bands}</VRTDataset>'


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    return _write(tmp_path / "secret.tif", SECRET)


def _seen(path: Path, **options: bool) -> set[int]:
    """All values that a reader gets, at full size and thinned out, which is where overviews come in."""
    with open_raster(path, **options) as dataset:
        found = set(np.unique(dataset.read(1, out_shape=(64, 64)))) | set(np.unique(dataset.read()))
        return found | {int(v) for v in np.unique(dataset.dataset_mask(out_shape=(64, 64)))}


@pytest.mark.parametrize("domain", ["OVERVIEWS", "overviews"])
@pytest.mark.parametrize("form", ["inline", "file", "curl", "base"])
def test_overviews_named_in_the_metadata_are_refused(tmp_path: Path, secret: Path, domain: str, form: str) -> None:
    named = {
        "inline": _vrt(str(secret)),
        "file": str(secret),
        "curl": "/vsicurl/http://127.0.0.1:9/x.tif",
        "base": ":::BASE:::secret.tif",
    }[form]
    path = _write(tmp_path / "evil.tif", OWN)
    with rasterio.open(path, "r+") as dataset:
        dataset.update_tags(ns=domain, OVERVIEW_FILE=named)
    with rasterio.open(path) as dataset:  # what GDAL does if it is let
        if form in ("inline", "file"):
            assert dataset.read(1, out_shape=(64, 64)).max() == SECRET
    with pytest.raises(RasterError, match="names another file for its overviews"), open_raster(path):
        pass


@pytest.mark.parametrize("name", ["scene.vrt", "scene.tif", "scene.png"])
def test_a_vrt_is_refused_by_any_name_and_trusted_on_request(tmp_path: Path, secret: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(_vrt(str(secret)))
    with pytest.raises(RasterError, match="`allow_vrt`"), open_raster(path):
        pass
    assert SECRET in _seen(path, allow_vrt=True)


@pytest.mark.parametrize("suffix", [".ovr", ".msk"])
def test_sidecars_with_pixels_are_not_read(tmp_path: Path, secret: Path, suffix: str) -> None:
    path = _write(tmp_path / "scene.tif", OWN)
    _write(tmp_path / f"scene.tif{suffix}", SECRET)
    if suffix == ".ovr":
        with rasterio.open(tmp_path / "plain.tif", "w", **_small()) as dataset:
            dataset.write(np.full((3, 128, 128), SECRET, np.uint8))
        shutil.copy(tmp_path / "plain.tif", tmp_path / "scene.tif.ovr")
    assert _seen(path) == {OWN, 255}


def _small() -> dict[str, object]:
    return {"driver": "GTiff", "count": 3, "height": 128, "width": 128, "dtype": "uint8"}


def test_auxiliary_metadata_is_not_read(tmp_path: Path, secret: Path) -> None:
    path = _write(tmp_path / "scene.tif", OWN)
    (tmp_path / "scene.tif.aux.xml").write_text(
        "<PAMDataset><Metadata domain='OVERVIEWS'><MDI key='OVERVIEW_FILE'>"
        f"{secret}</MDI></Metadata><PAMRasterBand band='1'><NoDataValue>{OWN}</NoDataValue></PAMRasterBand>"
        "</PAMDataset>"
    )
    with rasterio.open(path) as dataset:
        assert dataset.nodata == OWN
    with open_raster(path) as dataset:
        assert dataset.nodata is None
    assert _seen(path) == {OWN, 255}


def test_virtual_paths_are_the_users_choice(tmp_path: Path, secret: Path) -> None:
    for name in (f"/vsisubfile/0,{secret}", "/vsicurl/http://127.0.0.1:9/x.tif", "s3://bucket/x.tif"):
        with pytest.raises(RasterError, match="`allow_vrt`"), open_raster(name):
            pass
    with open_raster(f"/vsisubfile/0,{secret}", allow_vrt=True) as dataset:
        assert dataset.width == 256


def test_a_world_file_that_is_not_read_is_mentioned(tmp_path: Path) -> None:
    path = _write(tmp_path / "scene.tif", OWN, crs=None, transform=None)
    (tmp_path / "scene.tfw").write_text("0.3\n0\n0\n-0.3\n500000\n5600000\n")
    with open_raster(path) as dataset:
        assert dataset.transform.is_identity
        assert "scene.tfw is not read" in str(opening.ignored_place(dataset, path, False))
    with open_raster(path, allow_vrt=True) as dataset:
        assert dataset.transform.a == 0.3
        assert opening.ignored_place(dataset, path, True) is None


@pytest.mark.parametrize(
    "said",
    [
        'EXTENSION["PROJ4","+proj=utm +zone=32 +nadgrids=/etc/passwd"]',
        'EXTENSION["PROJ4","+proj=utm +zone=32 +nadgrids = /etc/passwd"]',
        'EXTENSION["PROJ4_GRIDS","/etc/passwd"]',
        'EXTENSION["PROJ4","+proj=defmodel +model=/etc/passwd"]',
        'EXTENSION["PROJ4","+proj=utm +zone=32 +unknown=/etc/passwd"]',
        'METHOD["NTv2"],PARAMETERFILE["Latitude and longitude difference file","/etc/passwd"]',
    ],
)
def test_what_names_a_file_in_a_coordinate_system(said: str) -> None:
    assert names_a_file(f'PROJCS["x",{said}]'.lower())


@pytest.mark.parametrize(
    "code",
    ["EPSG:3857", "EPSG:4326", "EPSG:26910", "EPSG:5514", "ESRI:54009", "EPSG:7415", "OGC:CRS84", "IAU_2015:49910"],
)
def test_ordinary_coordinate_systems_name_none(code: str) -> None:
    assert not names_a_file(rasterio.crs.CRS.from_string(code).to_wkt().lower())


def test_a_coordinate_system_that_names_a_grid_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _write(tmp_path / "scene.tif", OWN)

    class Named:
        def to_wkt(self) -> str:
            return 'PROJCS["x",EXTENSION["PROJ4","+proj=utm +zone=32 +nadgrids=/etc/passwd"]]'

    class Dataset:
        crs = Named()

        def tag_namespaces(self) -> list[str]:
            return []

        def tags(self, ns: str) -> dict[str, str]:
            return {}

    with pytest.raises(RasterError, match="names a grid file"):
        opening._check_alone(Dataset(), path)  # type: ignore[arg-type]


def test_huge_blocks_are_refused_before_they_are_read(tmp_path: Path) -> None:
    path = tmp_path / "strip.tif"
    size = 20_000
    profile = {"count": 3, "height": size, "width": size, "dtype": "uint8", "driver": "GTiff"}
    with rasterio.open(path, "w", tiled=True, blockxsize=size, blockysize=size, SPARSE_OK=True, **profile):
        pass
    assert path.stat().st_size < 10_000
    with pytest.raises(RasterError, match=r"blocks of 20000 x 20000 pixels, 1.2 GB each"), open_raster(path):
        pass


_BASE = (
    'BASEGEOGCRS["WGS 84",DATUM["World Geodetic System 1984",ELLIPSOID["WGS 84",6378137,298.257223563]],'
    'PRIMEM["Greenwich",0,ANGLEUNIT["degree",0.0174532925199433]]]'
)
_AXES = 'CS[Cartesian,2],AXIS["e",east,ORDER[1],LENGTHUNIT["metre",1]],AXIS["n",north,ORDER[2],LENGTHUNIT["metre",1]]'
_PLAIN = (
    'PROJCS["x",GEOGCS["GCS_WGS_1984",DATUM["D_WGS_1984",SPHEROID["WGS_1984",6378137,298.257223563]],'
    'PRIMEM["Greenwich",0],UNIT["Degree",0.0174532925199433]],PROJECTION["Transverse_Mercator"],'
    'PARAMETER["False_Easting",500000],PARAMETER["False_Northing",0],PARAMETER["Central_Meridian",9],'
    'PARAMETER["Scale_Factor",0.9996],PARAMETER["Latitude_Of_Origin",0],UNIT["Meter",1]]'
)


def _cited(path: Path, wkt: str) -> Path:
    """A GeoTIFF whose coordinate system is given in the words of a citation, which GDAL takes as any WKT."""
    words = f"ESRI PE String = {wkt}|"
    keys = (1, 1, 0, 3, 1024, 0, 1, 32767, 1025, 0, 1, 1, 3073, 34737, len(words), 0)
    place = [(33550, "d", 3, (0.3, 0.3, 0.0), True), (33922, "d", 6, (0.0, 0, 0, 5e5, 5.6e6, 0), True)]
    tags = [(34735, "H", len(keys), keys, True), (34737, "s", 0, words, True), *place]
    tifffile.imwrite(path, np.zeros((64, 64, 3), np.uint8), photometric="rgb", metadata=None, extratags=tags)
    return path


@pytest.mark.parametrize(
    "wkt",
    [
        f'PROJCRS["x",{_BASE},CONVERSION["c",METHOD["PROJ tinshift file=/x"]],{_AXES}]',
        f'PROJCRS["x",{_BASE},CONVERSION["c",METHOD ( "proj merc nadgrids=/x" )],{_AXES}]',
        f'PROJCRS["x",{_BASE},CONVERSION["c",METHOD["PROJ merc init=/dev/stdin:x"]],{_AXES}]',
        _PLAIN[:-1] + ',EXTENSION["PROJ4","proj=merc nadgrids=/x"]]',
        _PLAIN[:-1] + ',EXTENSION["PROJ4","proj=merc unknown=/x"]]',
        _PLAIN.replace('],PRIMEM["G', ',EXTENSION["PROJ4_GRIDS","/x"]],PRIMEM["G', 1),
    ],
)
def test_words_of_a_citation_are_looked_at_before_gdal_reads_them(
    tmp_path: Path, wkt: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _cited(tmp_path / "a.tif", wkt)
    monkeypatch.setattr(rasterio, "open", lambda *_, **__: pytest.fail("GDAL has opened it"))
    with pytest.raises(RasterError, match="names a grid file"), open_raster(path):
        pass


@pytest.mark.parametrize("kind", [1, 3, 4, 7])
def test_words_that_are_numbers_are_read_or_refused(tmp_path: Path, kind: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """GDAL takes the numbers of a tag for text where that is their type."""
    path = _cited(tmp_path / "a.ndpi", f'PROJCRS["x",{_BASE},CONVERSION["c",METHOD["PROJ merc init=/x"]],{_AXES}]')
    content = bytearray(path.read_bytes())
    with tifffile.TiffFile(path, is_ndpi=False) as file:
        place = file.pages[0].tags[34737].offset
    content[place + 2 : place + 4] = kind.to_bytes(2, "little")
    path.write_bytes(content)
    monkeypatch.setattr(rasterio, "open", lambda *_, **__: pytest.fail("GDAL has opened it"))
    with pytest.raises(RasterError, match=r"names a grid file|header is damaged"), open_raster(path):
        pass


def test_a_codestream_of_jpeg_2000_is_opened(tmp_path: Path) -> None:
    whole = _write(tmp_path / "a.jp2", OWN, driver="JP2OpenJPEG").read_bytes()
    (tmp_path / "a.j2k").write_bytes(whole[whole.index(b"\xff\x4f\xff\x51") :])
    with open_raster(tmp_path / "a.j2k") as dataset:
        assert dataset.count == 3


def test_a_citation_that_names_nothing_is_a_coordinate_system(tmp_path: Path) -> None:
    with open_raster(_cited(tmp_path / "a.tif", _PLAIN)) as dataset:
        assert dataset.crs is not None and dataset.crs.is_projected


def test_words_of_a_jpeg_2000_are_looked_at(tmp_path: Path) -> None:
    path = _write(tmp_path / "a.jp2", OWN, driver="JP2OpenJPEG")
    content = path.read_bytes()
    words = b'<gml>METHOD["PROJ merc nadgrids=/x"]</gml>'
    box = (8 + len(words)).to_bytes(4) + b"xml " + words
    for place in (12, len(content)):
        path.write_bytes(content[:place] + box + content[place:])
        with pytest.raises(RasterError, match=r"names a grid file|header is damaged"), open_raster(path):
            pass


def test_gdal_keeps_a_bounded_part_of_a_raster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own default is a share of the machine's memory; who sets it otherwise is heeded."""
    raster = _write(tmp_path / "scene.tif", OWN)
    for trusted in (False, True):
        with open_raster(raster, allow_vrt=trusted):
            assert rasterio.env.getenv()["GDAL_CACHEMAX"] == 256 << 20
    monkeypatch.setenv("GDAL_CACHEMAX", "64")
    with open_raster(raster):
        assert "GDAL_CACHEMAX" not in rasterio.env.getenv()
