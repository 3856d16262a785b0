from __future__ import annotations

import csv
import json
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
from PIL import Image
from pyproj import Transformer
from rasterio.transform import Affine

from mgcap.data.folders import open_folder
from mgcap.errors import DataError, RasterError
from mgcap.geo.cut_tiles import TileOptions, cut_tiles
from mgcap.geo.folder_names import folder_names
from mgcap.persistence.files import atomic_folder
from mgcap.typing import Array
from tests.cli.run import run, sentence

PLACE = Affine(2, 0, 500_000, 0, -2, 5_600_000)
#: Pixels of 2 m, so that a tile is given in pixels.
SMALL = TileOptions(tile="16px")


def _raster(path: Path, bands: int = 3, dtype: str = "uint8", size: tuple[int, int] = (70, 50), **more: Any) -> Array:
    rng = np.random.default_rng(0)
    values = rng.integers(1, 250 if dtype == "uint8" else 4000, (bands, size[1], size[0])).astype(dtype)
    profile = {"crs": "EPSG:25832", "transform": PLACE, **more}
    with rasterio.open(
        path, "w", driver="GTiff", width=size[0], height=size[1], count=bands, dtype=dtype, **profile
    ) as file:
        file.write(values)
    return values


def _labels(path: Path, *features: tuple[str | None, str, list[tuple[float, float]]]) -> Path:
    """Features given in pixels, written in degrees."""
    to_degrees = Transformer.from_crs("EPSG:25832", "EPSG:4326", always_xy=True).transform
    written = []
    for name, kind, pixels in features:
        places: Any = [list(to_degrees(*(500_000 + 2 * pixel[0], 5_600_000 - 2 * pixel[1]))) for pixel in pixels]
        places = places[0] if kind == "Point" else [[*places, places[0]]] if kind == "Polygon" else places
        geometry = {"type": kind, "coordinates": places}
        written.append({"type": "Feature", "properties": {"class": name}, "geometry": geometry})
    path.write_text(json.dumps({"type": "FeatureCollection", "features": written}))
    return path


def _square(left: float, top: float, right: float, lower: float) -> list[tuple[float, float]]:
    return [(left, top), (right, top), (right, lower), (left, lower)]


@pytest.fixture
def labels(tmp_path: Path) -> Path:
    return _labels(
        tmp_path / "labels.geojson",
        ("Wald/Forêt", "Point", [(20, 5)]),  # row 0, column 1
        ("river", "Polygon", _square(0, 16, 44, 32)),  # row 1, columns 0 and 1, and 3/4 of column 2
        ("river", "Point", [(68, 5)]),  # the edge
        ("river", "Point", [(60, 40)]),  # row 2, column 3
        ("river", "Point", [(3, 3)]),  # contradicted
        ("Wald/Forêt", "Point", [(4, 4)]),
        (None, "Point", [(40, 5)]),
    )


def _rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "labels.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_tiles_are_windows_of_the_raster(tmp_path: Path, labels: Path) -> None:
    values = _raster(tmp_path / "scene.tif")
    cut = cut_tiles([tmp_path / "scene.tif"], labels, tmp_path / "out", options=SMALL)
    expected = {"Wald_Forêt": [(0, 1)], "river": [(1, 0), (1, 1), (1, 2), (2, 3)]}
    assert cut.counts == {"Wald/Forêt": 1, "river": 4}
    (left,) = cut.left_out.values()
    assert left["cells with labels of several classes"] == 1 and left["features without a class"] == 1
    assert left["labelled places at the edge of the raster, where no whole tile is"] == 1
    found = {folder.name for folder in (tmp_path / "out").iterdir()}
    assert found == {*expected, "labels.csv"}
    for name, places in expected.items():
        assert len(list((tmp_path / "out" / name).iterdir())) == len(places)
        for row, column in places:
            with rasterio.open(tmp_path / "out" / name / f"scene_{row}_{column}.tif") as tile:
                own = values[:, 16 * row : 16 * row + 16, 16 * column : 16 * column + 16]
                assert (tile.read() == own).all() and tile.crs.to_epsg() == 25832
                assert tile.transform == Affine(2, 0, 500_000 + 32 * column, 0, -2, 5_600_000 - 32 * row)
    rows = _rows(tmp_path / "out")
    assert [row["label"] for row in rows].count("Wald/Forêt") == 1 and len(rows) == 5
    (row,) = [row for row in rows if row["path"] == "river/scene_2_3.tif"]
    assert (float(row["x"]), float(row["y"])) == (500_000 + 2 * 56, 5_600_000 - 2 * 40)
    assert row["raster"] == str(tmp_path / "scene.tif")
    assert open_folder(tmp_path / "out").counts == {"Wald_Forêt": 1, "river": 4}
    assert open_folder(tmp_path / "out" / "labels.csv").counts == cut.counts
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    (tmp_path / "plain").mkdir()
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == stat.S_IMODE((tmp_path / "plain").stat().st_mode)


@pytest.mark.parametrize("form", ["png", "jpg"])
def test_pictures_have_world_files(tmp_path: Path, labels: Path, form: str) -> None:
    values = _raster(tmp_path / "scene.tif")
    cut_tiles([tmp_path / "scene.tif"], labels, tmp_path / "out", options=TileOptions("16px", form))
    path = tmp_path / "out" / "river" / f"scene_1_2.{form}"
    own = np.moveaxis(values[:, 16:32, 32:48], 0, -1)
    if form == "png":
        assert (np.asarray(Image.open(path)) == own).all()
    lines = path.with_suffix(".pgw" if form == "png" else ".jgw").read_text().split()
    assert [float(line) for line in lines] == [2, 0, 0, -2, 500_000 + 64 + 1, 5_600_000 - 32 - 1]
    with rasterio.open(path) as tile:  # as GDAL reads it
        assert tile.transform == Affine(2, 0, 500_064, 0, -2, 5_600_000 - 32)
    crs = rasterio.CRS.from_wkt(path.with_suffix(".prj").read_text())
    assert crs.to_epsg(confidence_threshold=20) == 25832 or "UTM_Zone_32N" in crs.to_wkt()


def test_depth_and_bands_are_kept(tmp_path: Path, labels: Path) -> None:
    values = _raster(tmp_path / "deep.tif", 5, "uint16", nodata=0)
    with pytest.raises(RasterError, match="does not say which are red, green and blue"):
        cut_tiles([tmp_path / "deep.tif"], labels, tmp_path / "out", options=SMALL)
    chosen = TileOptions("16px", bands=(5, 3, 2, 1))
    cut_tiles([tmp_path / "deep.tif"], labels, tmp_path / "out", options=chosen)
    with rasterio.open(tmp_path / "out" / "river" / "deep_1_1.tif") as tile:
        assert (tile.read() == values[[4, 2, 1, 0], 16:32, 16:32]).all()
        assert tile.dtypes == ("uint16",) * 4 and tile.nodata == 0
    with pytest.raises(RasterError, match="has uint16 pixels and png tiles have bytes"):
        cut_tiles([tmp_path / "deep.tif"], labels, tmp_path / "b", options=TileOptions("16px", "png", bands=(3, 2, 1)))
    scaled = TileOptions("16px", bands=(3, 2, 1), scale="0,4000")
    cut_tiles([tmp_path / "deep.tif"], labels, tmp_path / "c", options=scaled)
    with rasterio.open(tmp_path / "c" / "river" / "deep_1_1.tif") as tile:
        expected = values[[2, 1, 0], 16:32, 16:32].astype(float) * 255 / 4000
        assert tile.dtypes == ("uint8",) * 3 and np.abs(tile.read() - expected).max() <= 0.51


def test_several_rasters_and_tiles_without_data(tmp_path: Path, labels: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    _raster(tmp_path / "a" / "scene.tif")
    _raster(tmp_path / "b" / "scene.tif", nodata=0)
    with rasterio.open(tmp_path / "b" / "scene.tif", "r+") as file:
        file.write(np.zeros((3, 16, 16), np.uint8), window=rasterio.windows.Window(0, 16, 16, 16))
    rasters = [tmp_path / "a" / "scene.tif", tmp_path / "b" / "scene.tif"]
    cut = cut_tiles(rasters, labels, tmp_path / "out", options=SMALL)
    assert cut.counts == {"Wald/Forêt": 2, "river": 7}
    names = sorted(path.name for path in (tmp_path / "out" / "river").iterdir())
    assert names == [*(f"scene-2_{p}.tif" for p in ("1_1", "1_2", "2_3")),
                     *(f"scene_{p}.tif" for p in ("1_0", "1_1", "1_2", "2_3"))]  # fmt: skip
    assert "labelled tiles with data in less than 50 % of their pixels" in cut.left_out[str(rasters[1])]
    assert not any("data in less" in why for why in cut.left_out[str(rasters[0])])


def test_rasters_without_a_place(tmp_path: Path) -> None:
    _raster(tmp_path / "scene.tif", crs=None, transform=Affine.identity())
    (tmp_path / "l.csv").write_text("x,y,class\n20,5,a\n50,40,b\n")
    cut = cut_tiles([tmp_path / "scene.tif"], tmp_path / "l.csv", tmp_path / "out", options=TileOptions("16px", "png"))
    assert cut.counts == {"a": 1, "b": 1}
    assert sorted(p.name for p in (tmp_path / "out").rglob("*.*")) == ["labels.csv", "scene_0_1.png", "scene_2_3.png"]


def test_what_is_wrong_is_said_and_nothing_is_written(tmp_path: Path, labels: Path) -> None:
    _raster(tmp_path / "scene.tif")
    scene, out = [tmp_path / "scene.tif"], tmp_path / "out"
    far = _labels(tmp_path / "far.geojson", ("a", "Point", [(900, 900)]))
    same = _labels(tmp_path / "same.geojson", ("a/b", "Point", [(20, 5)]), ("A_b", "Point", [(50, 5)]))
    for sentence_, vectors, options in (
        ("70 x 50 pixels, smaller than a tile of 256 x 256", labels, None),
        ("`bands` takes numbers from 1 to 3", labels, TileOptions("16px", bands=(4,))),
        ("labels no cell of scene.tif: 1 points outside of the raster", far, SMALL),
        ("the classes 'A_b' and 'a/b' would share the folder", same, SMALL),
    ):
        with pytest.raises(DataError, match=sentence_):
            cut_tiles(scene, vectors, out, options=options)
        assert not out.exists()
    with pytest.raises(RasterError, match="`form` takes tif, png or jpg"):
        TileOptions(form="gif")
    _raster(tmp_path / "empty.tif", nodata=0)
    with rasterio.open(tmp_path / "empty.tif", "r+") as file:
        file.write(np.zeros((3, 50, 70), np.uint8))
    with pytest.raises(RasterError, match="none of the 5 labelled tiles has data"):
        cut_tiles([tmp_path / "empty.tif"], labels, out, options=SMALL)
    out.mkdir()
    (out / "mine.txt").touch()
    with pytest.raises(DataError, match="is not empty"):
        cut_tiles(scene, labels, out, options=SMALL)
    assert [p.name for p in out.iterdir()] == ["mine.txt"] and not list(tmp_path.glob(".*"))


def test_a_folder_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), atomic_folder(tmp_path / "a") as folder:
        (folder / "x").touch()
        raise KeyboardInterrupt
    assert not list(tmp_path.iterdir())
    (tmp_path / "b").mkdir()
    with atomic_folder(tmp_path / "b") as folder:
        (folder / "x").touch()
        assert not list((tmp_path / "b").iterdir())
    assert [p.name for p in tmp_path.rglob("*")] == ["b", "x"]
    with pytest.raises(DataError, match="is a file"), atomic_folder(tmp_path / "b" / "x"):
        pass


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("forest", "forest"),
        ("Fluß & Ufer (nass)", "Fluß & Ufer (nass)"),
        ("森林", "森林"),
        ("a/b\\c", "a_b_c"),
        ("..", "_"),
        (".hidden", "_hidden"),
        ("../../etc", "_._.._etc"),
        ("__MACOSX", "_MACOSX"),
        ("a. ", "a"),
        ("NUL", "NUL_"),
        ("con.x", "con.x_"),
        ("a:b*c?", "a_b_c_"),
        ("", "_"),
        ("Wa\u0308lder", "Wälder"),
        ("é" * 200, "é" * 90),
    ],
)
def test_classes_as_folders(name: str, folder: str, tmp_path: Path) -> None:
    (safe,) = folder_names([name])
    assert safe == folder
    (tmp_path / safe).mkdir()
    assert [p.name for p in tmp_path.iterdir()] == [safe]


def test_classes_that_would_share_a_folder() -> None:
    with pytest.raises(DataError, match="the classes 'Forest' and 'forest' would share the folder 'forest'"):
        folder_names(["Forest", "forest"])


def test_the_command(tmp_path: Path, labels: Path) -> None:
    _raster(tmp_path / "scene.tif")
    out = tmp_path / "out"
    given = ["datasets", "tiles", tmp_path / "scene.tif", labels, "--field", "class", "--out", out, "--tile", "16px"]
    assert "--format takes tif, png or jpg, not 'jgp' (did you mean 'jpg'?)" in sentence(*given, "--format", "jgp")
    assert "--bands takes numbers" in sentence(*given, "--bands", "9")
    assert "has no field 'kind'" in sentence(*[*given[:5], "kind", *given[6:]])
    done = run(*given)
    assert "river       4" in done.stdout and done.stdout.rstrip().endswith(str(out))
    assert "5 tiles of 2 classes" in done.stderr and "left out: 1 features without a class" in done.stderr
    assert "is not empty" in sentence(*given)
