from __future__ import annotations

import errno
import json
import re
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
from PIL import Image
from pyogrio.errors import FeatureError
from rasterio.transform import Affine

from mgcap.classifier import SceneClassifier
from mgcap.errors import RasterError
from mgcap.geo.cellmap import read_cells
from mgcap.geo.cells import Place
from mgcap.geo.grid import Grid
from mgcap.geo.mapping import Mapped, map_raster
from mgcap.geo.pictures import write_class_raster
from mgcap.geo.votes import ClassMap
from mgcap.geo.writing import FULL, check_outputs, writing
from tests.geo.maps import PLACE


@pytest.fixture(scope="module")
def classifier(model_file: Path) -> SceneClassifier:
    return SceneClassifier.load(model_file, engine="torch")


def _contents(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir() if not file.name.endswith(".zarr")}


@pytest.mark.parametrize("suffix", ["gpkg", "geojson"])
def test_the_files_of_a_map_are_those_that_it_says(
    classifier: SceneClassifier, model_file: Path, write_raster: Any, picture: Any, tmp_path: Path, suffix: str
) -> None:
    """Also of a map that takes the place of another one, which had more."""
    raster, folder = write_raster(picture[:, :64, :128]), tmp_path / "out"
    folder.mkdir()
    (folder / "map.notes.csv").write_text("mine")
    (folder / "map.classes.gpkg").write_text("mine")

    def make(**options: Any) -> Mapped:
        return map_raster(classifier, model_file, raster, folder / f"map.{suffix}", cells=1, **options)

    plain = {f"map.{suffix}", "map.qml", "map.sld", "map.tif", "map.tif.aux.xml", "map.probability.tif", "map.png",
             "map.csv", "map.distance.tif"}  # fmt: skip
    dissolved = {"map.classes.qml", "map.classes.sld"} | ({f"map.classes.{suffix}"} - {"map.classes.gpkg"})
    unknown = {"map.unknown.csv", "map.unknown.png"}
    for options, more in (
        ({"unknown": 0.9, "dissolve": True}, dissolved | unknown),
        ({"unknown": 0.9}, unknown),
        ({"unknown": 0, "dissolve": True}, dissolved),
        ({"unknown": 0}, set()),
    ):
        done = make(**options)
        assert {file.name for file in done.files} == plain | more and len(set(done.files)) == len(done.files)
        assert _contents(folder) == plain | more | {"map.notes.csv", "map.classes.gpkg"}
        assert [file.suffix for file in done.files[:5]] == [f".{suffix}", ".tif", ".tif", ".png", ".csv"]
    assert (folder / "map.classes.gpkg").read_text() == "mine"


def test_without_a_sample_no_distances_of_an_earlier_map_stay(
    model_file: Path, write_raster: Any, picture: Any, tmp_path: Path
) -> None:
    raster, out = write_raster(picture[:, :64, :128]), tmp_path / "map.gpkg"
    model = SceneClassifier.load(model_file, engine="torch")
    assert out.with_suffix(".distance.tif") in map_raster(model, model_file, raster, out, cells=1).files
    model.sample_ = None
    assert not {f.name for f in map_raster(model, model_file, raster, out, cells=1).files} & {"map.distance.tif"}
    assert not out.with_suffix(".distance.tif").exists()


@pytest.mark.parametrize(
    "name", ["map.tif", "map.png", "map.probability.tif", "map.distance.tif", "map.unknown.png", "deep/../map.png"]
)
def test_the_raster_is_never_overwritten(
    classifier: SceneClassifier, model_file: Path, tmp_path: Path, name: str
) -> None:
    (tmp_path / "deep").mkdir()
    path = tmp_path / name
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8))
    image.save(path, "TIFF" if name.endswith("tif") else "PNG")
    before = path.read_bytes()
    sentence = f"the map would overwrite {re.escape(str(path))}; give `out` another name"
    with pytest.raises(RasterError, match=sentence):
        map_raster(classifier, model_file, path, tmp_path / "map.gpkg", tile="64px")
    assert path.read_bytes() == before
    check_outputs(tmp_path / "other.gpkg", path)


def _found(count: int) -> ClassMap:
    """As many classes as that, one for each cell, and a cell without data."""
    rows = -(-(count + 1) // 20)
    numbers = np.full(20 * rows, -1, np.int16)
    numbers[:count] = np.arange(count)
    shape = rows, 20
    return ClassMap(np.zeros((*shape, 1), np.float32), numbers.reshape(shape), np.zeros(shape, np.float32))


@pytest.mark.parametrize(("count", "kind"), [(255, "uint8"), (256, "uint16"), (700, "uint16")])
def test_a_class_raster_has_room_for_all_classes(tmp_path: Path, count: int, kind: str) -> None:
    found, names = _found(count), [f"kind {number}" for number in range(count - 1)] + ["unknown"]
    rows, columns = found.classes.shape
    grid = Grid(10 * columns, 10 * rows, 10, 10)
    ground = Affine(PLACE.a / 10, 0, PLACE.c, 0, PLACE.e / 10, PLACE.f)
    path = tmp_path / "map.tif"
    place = Place(ground, rasterio.crs.CRS.from_epsg(25832), None)  # type: ignore[arg-type]
    assert write_class_raster(path, found, grid, place, names) == tmp_path / "map.tif.aux.xml"
    with rasterio.open(path) as dataset:
        assert dataset.dtypes == (kind,) and dataset.nodata == 0
        values, colours = dataset.read(1), dataset.colormap(1)
        assert dataset.tags()[f"CLASS_{count}"] == "unknown"
    assert (values.astype(int) == found.classes.astype(int) + 1).all()
    assert len({colours[number] for number in range(1, count + 1)}) == count
    again = read_cells(path)
    assert again.classes == tuple(names) and again.unknown == count - 1
    assert (again.numbers == found.classes).all()


def test_polygons_of_a_geopackage_say_the_classes_of_the_raster(
    classifier: SceneClassifier, model_file: Path, write_raster: Any, picture: Any, tmp_path: Path
) -> None:
    """Where some are unknown: in the polygons, the raster, the table and the style."""
    out = tmp_path / "map.gpkg"
    done = map_raster(classifier, model_file, write_raster(picture), out, unknown=0.5)
    cells = read_cells(out)
    assert done.classes[-1] == cells.classes[-1] == "unknown" and (cells.numbers == 4).any()
    with sqlite3.connect(out) as database:
        found = database.execute('SELECT "row", "column", class, label, probability FROM scenes').fetchall()
        (style,) = database.execute("SELECT styleQML FROM layer_styles").fetchone()
    assert len(found) == (cells.numbers >= 0).sum() and 'value="unknown"' in style
    for row, column, name, label, probability in found:
        number = cells.numbers[row, column]
        assert name == cells.classes[number] and label == done.classes[number]
        assert (probability is None) == (name == "unknown")
    table = out.with_suffix(".csv").read_text().splitlines()
    (line,) = [line for line in table if line.startswith("unknown,")]
    assert line.split(",")[1] == str((cells.numbers == 4).sum())


def test_geojson_has_no_probability_of_what_is_unknown(
    classifier: SceneClassifier, model_file: Path, write_raster: Any, picture: Any, tmp_path: Path
) -> None:
    out = tmp_path / "map.geojson"
    map_raster(classifier, model_file, write_raster(picture), out, unknown=0.5, cells=2)
    rows = [feature["properties"] for feature in json.loads(out.read_text())["features"]]
    unknown = [row for row in rows if row["class"] == "unknown"]
    assert unknown and all(row["probability"] is None and row["distance"] > 0 for row in unknown)


@pytest.mark.parametrize("error", [FeatureError("no such table"), sqlite3.OperationalError("x"), RasterError("x")])
def test_a_full_disk_is_called_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(FULL, FULL, FULL - 1))
    with pytest.raises(OSError, match="No space left") as caught, writing(tmp_path / "map.gpkg"):
        raise error
    assert caught.value.errno == errno.ENOSPC and caught.value.__cause__ is error


def test_other_errors_are_one_sentence_or_as_they_were(tmp_path: Path) -> None:
    said = r"map\.gpkg and the files beside it cannot be written: no such table$"
    with pytest.raises(RasterError, match=said), writing(tmp_path / "map.gpkg"):
        raise FeatureError("no such\n table")
    own: list[Any] = [RasterError("of our own"), KeyError("x"), PermissionError(13, "x", "y"), KeyboardInterrupt()]
    for error in own:
        with pytest.raises(type(error)) as caught, writing(tmp_path / "map.gpkg"):
            raise error
        assert caught.value is error
