from __future__ import annotations

import copy
import itertools
import json
import pickle
import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyogrio
import pytest
import rasterio
from PIL import Image
from rasterio.transform import Affine

from mgcap.classifier import SceneClassifier
from mgcap.data.folders import open_folder
from mgcap.errors import MgcapError, RasterError
from mgcap.geo.mapping import compute_here, map_raster
from mgcap.geo.plan import Plan, parse_tile
from mgcap.geo.tiles import Answers
from mgcap.geo.votes import _sieved
from mgcap.persistence.files import sha256_of
from mgcap.runtime import Progress
from tests.conftest import TINY
from tests.geo.indexes import Lines
from tests.inference.plain import patches_backbone


@pytest.fixture(scope="module")
def classifier(model_file: Path) -> SceneClassifier:
    return SceneClassifier.load(model_file, engine="torch")


@pytest.fixture
def make_map(classifier: SceneClassifier, model_file: Path, tmp_path: Path) -> Any:
    def make(raster: Path, name: str = "out/map.gpkg", **options: Any) -> Any:
        return map_raster(classifier, model_file, raster, tmp_path / name, **{"unknown": 0, **options})

    return make


@pytest.fixture(params=[False, True], ids=["dense", "exact"])
def exact(request: pytest.FixtureRequest) -> bool:
    """Both ways to make a map: from an index of the raster's cells, and tile by tile."""
    return bool(request.param)


def _features(path: Path) -> Any:
    meta, _, geometry, fields = pyogrio.raw.read(path, layer="scenes")
    return meta, geometry, dict(zip(meta["fields"], fields, strict=True))


def test_every_cell_is_what_predict_says_of_it(
    make_map: Any, write_raster: Any, picture: Any, classifier: SceneClassifier
) -> None:
    done = make_map(write_raster(picture), exact=True)
    grid = done.plan.grid
    assert (grid.columns, grid.rows, len(grid)) == (4, 3, 12)
    assert done.plan.shape == (64, 64)
    tiles = [grid.tile(n) for n in range(len(grid))]
    cut = [np.moveaxis(picture[:, t.y : t.y + t.height, t.x : t.x + t.width], 0, -1) for t in tiles]
    expected = classifier.predict_proba(cut).reshape(3, 4, -1)
    assert np.allclose(done.found.probabilities, expected, atol=1e-5)
    angles = [_canonical(classifier, image) for image in cut]
    assert done.found.angles.ravel().tolist() == angles


def _canonical(classifier: SceneClassifier, image: Any) -> float:
    import torch

    votes = classifier.model_.canonical(torch.from_numpy(np.moveaxis(image, -1, 0).copy())[None].float() / 255).votes
    return classifier.model_.config.angles[int(votes.sum(1).argmax())]


def test_a_classifier_knows_its_file(
    classifier: SceneClassifier, model_file: Path, scenes: Path, picture: Any, write_raster: Any, tmp_path: Path
) -> None:
    raster = write_raster(picture)
    done = map_raster(classifier, None, raster, tmp_path / "map.gpkg", unknown=0)
    assert done.plan.model == str(model_file) and done.plan.model_fingerprint == sha256_of(model_file)
    files = sorted(scenes.glob("*/*.png"))
    made = SceneClassifier(**TINY, resolution=0.5).fit(files, [path.parent.name for path in files])
    assert made.file_ is None and made.fingerprint_ is None
    with pytest.raises(MgcapError, match=r"the model is in no file, .*; save it before"):
        map_raster(made, None, raster, tmp_path / "made.gpkg", unknown=0)
    made.save(tmp_path / "made.mgcap")
    twin = SceneClassifier.load(tmp_path / "made.mgcap", engine="torch")
    assert made.file_ == twin.file_ == tmp_path / "made.mgcap"
    assert made.fingerprint_ == twin.fingerprint_ == sha256_of(tmp_path / "made.mgcap")
    found = map_raster(made, None, raster, tmp_path / "made.gpkg", unknown=0)
    assert found.plan.model_fingerprint == made.fingerprint_


def test_every_cell_of_the_dense_way_is_what_predict_says_of_the_tile_around_it(
    make_map: Any, write_raster: Any, picture: Any, scenes: Path, tmp_path: Path
) -> None:
    picture = np.concatenate([picture, picture[:, :2]], 1)  # whole positions of a network with one for 8 x 8 pixels
    with patches_backbone():
        small = {**TINY, "backbone": "patches", "layer": "last", "reduction": "none", "channels": None, "rotations": 4}
        folder, model = open_folder(scenes), tmp_path / "patches.mgcap"
        classifier = SceneClassifier(**{**small, "field_of_view": 1.0, "resolution": 0.5, "cache": False})
        classifier.fit(folder.paths, folder.labels).save(model)
        done = map_raster(classifier, model, write_raster(picture), tmp_path / "map.gpkg", unknown=0)
        starts = [[min(max(16 * n - 24, 0), side - 64) for n in range(-(-side // 16))] for side in (152, 200)]
        cut = [np.moveaxis(picture[:, y : y + 64, x : x + 64], 0, -1) for y, x in itertools.product(*starts)]
        expected = classifier.predict_proba(cut).reshape(10, 13, -1)
        angles = [_canonical(classifier, image) for image in cut]
    assert 0.5 < expected.max(-1).mean() < 0.99
    assert np.allclose(done.found.probabilities, expected, atol=5e-3)  # vectors are kept in half precision
    assert done.found.angles.ravel().tolist() == angles


def test_geopackage_has_polygons_areas_and_a_style(make_map: Any, write_raster: Any, picture: Any, exact: bool) -> None:
    import shapely

    done = make_map(write_raster(picture), exact=exact, unknown=0.01)
    meta, geometry, fields = _features(done.files[0])
    assert meta["crs"] == "EPSG:25832"
    shapes = shapely.from_wkb(geometry)
    assert shapely.union_all(shapes).bounds == (500_000, 5_599_925, 500_100, 5_600_000)
    assert shapely.area(shapes).sum() == pytest.approx(100 * 75)
    assert fields["area_m2"].sum() == pytest.approx(100 * 75, rel=2e-3)  # the projection's scale is 0.9996
    assert set(fields["class"]) <= set(done.classes)
    assert len(geometry) == (12 if exact else 130)
    assert np.nanmax(fields["probability"]) <= 1
    assert all(text.count(", ") == 2 for text in fields["top3"])
    with sqlite3.connect(done.files[0]) as database:
        ((table, style, default),) = database.execute("SELECT f_table_name, styleQML, useAsDefault FROM layer_styles")
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert (table, default) == ("scenes", 1)
    assert style.count("<category ") == len(done.classes)


def test_rasters_picture_and_table(make_map: Any, write_raster: Any, picture: Any, exact: bool) -> None:
    done = make_map(write_raster(picture), exact=exact)
    _, classes, probability, look, table = done.files[:5]
    with rasterio.open(classes) as dataset:
        assert dataset.tags(ns="IMAGE_STRUCTURE")["LAYOUT"] == "COG"
        assert (dataset.read(1) == done.found.classes + 1).all()
        side = 32 if exact else 8
        assert dataset.transform == Affine(side, 0, 500_000, 0, -side, 5_600_000)
        assert dataset.colormap(1)[1][3] == 255
        assert dataset.tags()["CLASS_1"] == done.classes[0]
        assert dataset.nodata == 0
    assert f"<Category>{done.classes[0]}</Category>" in Path(f"{classes}.aux.xml").read_text()
    with rasterio.open(probability) as dataset:
        values = dataset.read()
        assert dataset.descriptions == ("probability", *done.classes)
    assert np.allclose(values[0], done.found.probabilities.max(-1), atol=1e-4)
    with Image.open(look) as image:
        assert min(image.size) > 300
    lines = table.read_text().splitlines()
    assert lines[0] == "class,cells,area_m2,share"
    assert sum(int(line.split(",")[1]) for line in lines[1:]) == (12 if exact else 130)
    assert not list(table.parent.glob("*.parts"))


def test_geojson_is_in_degrees_and_anticlockwise(make_map: Any, write_raster: Any, picture: Any, exact: bool) -> None:
    rotated = Affine(0.3, 0.4, 500_000, 0.4, -0.3, 5_600_000)  # a grid that lies askew, pixels of 0.5 m
    done = make_map(write_raster(picture, transform=rotated), "rotated.geojson", exact=exact)
    found = json.loads(done.files[0].read_text())
    assert len(found["features"]) == (12 if exact else 130)
    for feature in found["features"]:
        (ring,) = feature["geometry"]["coordinates"]
        assert ring[0] == ring[-1]
        assert all(8.9 < lon < 9.1 and 50 < lat < 51 for lon, lat in ring)
        x, y = np.array(ring).T
        assert (x[:-1] * y[1:] - x[1:] * y[:-1]).sum() > 0
        assert 0 <= feature["properties"]["probability"] <= 1


def test_without_a_place_tiles_are_counted_in_pixels(
    make_map: Any, write_raster: Any, picture: Any, exact: bool
) -> None:
    raster = write_raster(picture, crs=None, transform=Affine.identity())
    done = make_map(raster, exact=exact)
    assert done.plan.cell == ((64, 64) if exact else (16, 16))
    assert done.areas.sum() == pytest.approx(150 * 200)
    with pytest.raises(RasterError, match="must be given in pixels"):
        make_map(raster, tile="30m", exact=exact)


def test_coarse_pixels_are_refused_unless_one_insists(
    make_map: Any, write_raster: Any, picture: Any, exact: bool
) -> None:
    coarse = write_raster(picture, transform=Affine(2, 0, 500_000, 0, -2, 5_600_000))
    with pytest.raises(RasterError, match=r"pixels of 2 m, but the model was trained at 0\.5 m"):
        make_map(coarse, exact=exact)
    assert make_map(coarse, tile="64px", exact=exact).found.classes.shape == ((3, 4) if exact else (10, 13))
    with pytest.raises(RasterError, match="at least 8"):
        make_map(coarse, tile="10m", exact=exact)


def test_finer_pixels_are_resampled_to_the_models_resolution(
    make_map: Any, write_raster: Any, picture: Any, exact: bool
) -> None:
    fine = write_raster(picture.repeat(2, 1).repeat(2, 2), transform=Affine(0.25, 0, 500_000, 0, -0.25, 5_600_000))
    done, plain = (
        make_map(raster, f"{name}/map.gpkg", exact=exact)
        for name, raster in (("fine", fine), ("plain", write_raster(picture, "plain.tif")))
    )
    assert done.plan.cell == ((128, 128) if exact else (32, 32))
    assert done.plan.shape == (64, 64)
    if exact:
        assert np.allclose(done.found.probabilities, plain.found.probabilities, atol=1e-5)
    else:  # vectors are kept in half precision
        assert np.allclose(done.found.probabilities, plain.found.probabilities, atol=5e-3)


def test_overlapping_tiles_vote(make_map: Any, write_raster: Any, picture: Any) -> None:
    raster = write_raster(picture)
    done = make_map(raster, overlap=0.5)
    grid = done.plan.grid
    assert (grid.cell_width, grid.k, grid.columns, grid.rows) == (32, 2, 7, 5)
    single = make_map(raster, "single.gpkg", tile="64px", exact=True)
    corner = single.found.probabilities[0, 0]  # the corner cell is seen by the first tile alone
    assert np.allclose(done.found.probabilities[0, 0], corner, atol=1e-6)
    # with every second tile left out, the cells of tile 0 would be those of the plain map
    assert not np.allclose(done.found.probabilities[1, 1], corner, atol=1e-6)
    assert np.allclose(done.found.probabilities.sum(-1), 1, atol=1e-5)


def test_holes_of_the_dense_way_stay_empty_cell_by_cell(make_map: Any, write_raster: Any, picture: Any) -> None:
    values = np.maximum(picture, 1)
    values[:, :, :104] = 0  # half of the seventh column has data
    values[:, :64, 160:] = 0
    done = make_map(write_raster(values, nodata=0))
    share = np.array(
        [[(values[0, y : y + 16, x : x + 16] > 0).mean() for x in range(0, 200, 16)] for y in range(0, 150, 16)]
    )
    assert not done.found.has_data[share < 0.5].any()
    assert done.found.has_data[5:, 7:].all() and done.found.has_data[5:, 6].all()
    shapes = _features(done.files[0])[1]
    assert len(shapes) == done.found.has_data.sum() < 130
    assert np.isnan(done.found.probabilities[~done.found.has_data]).all()
    with pytest.raises(RasterError, match="no tile with data"):
        make_map(write_raster(np.zeros_like(values), "void.tif", nodata=0))


def test_holes_stay_empty(make_map: Any, write_raster: Any, picture: Any) -> None:
    values = picture.copy()
    values[:, :, :100] = 0
    done = make_map(write_raster(values, nodata=0), exact=True)
    assert (done.found.classes[:, 0] == -1).all()
    assert (done.found.classes[:, 1] == -1).all() or (done.found.classes[:, 1] >= 0).all()
    assert (done.found.classes[:, 2:] >= 0).all()
    _, geometry, _ = _features(done.files[0])
    assert len(geometry) == done.found.has_data.sum() < 12
    with pytest.raises(RasterError, match="no tile with data"):
        make_map(write_raster(np.zeros_like(values), "void.tif", nodata=0), exact=True)


def test_specks_are_merged() -> None:
    classes = np.zeros((6, 6), np.int16)
    classes[:, 3:] = 2
    classes[1, 1] = 1  # a speck within class 0
    classes[5, 4:] = -1
    assert _sieved(classes, 4)[1, 1] == 0
    expected = classes.copy()
    expected[1, 1] = 0
    assert (_sieved(classes, 4) == expected).all()
    assert (_sieved(classes, 1000) >= -1).all()


@pytest.mark.parametrize("way", [{"overlap": 0.5}, {"cells": 2}], ids=["exact", "dense"])
def test_merged_cells_have_the_probability_of_their_new_class(
    make_map: Any, write_raster: Any, picture: Any, way: Any
) -> None:
    plain, merged = (make_map(write_raster(picture), sieve=size, **way) for size in (0, 8))
    assert (plain.found.classes != merged.found.classes).any()
    own = np.take_along_axis(merged.found.probabilities, merged.found.classes[..., None].astype(int), -1)
    assert np.allclose(_features(merged.files[0])[2]["probability"], own.ravel(), atol=1e-4)


def test_a_killed_run_resumes_and_others_order_gives_the_same_bytes(
    make_map: Any, write_raster: Any, picture: Any, classifier: SceneClassifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mgcap.geo.plan.CHUNK", 2)
    raster = write_raster(picture)
    whole = {file.name: file.read_bytes() for file in make_map(raster, "whole/map.gpkg", exact=True).files}
    computed: list[int] = []

    def backwards(stop_after: int) -> Any:
        def work(plan: Plan, chunks: Sequence[int]) -> Iterator[tuple[int, Answers]]:
            for count, (chunk, answers) in enumerate(compute_here(classifier)(plan, chunks[::-1])):
                if count == stop_after:
                    raise KeyboardInterrupt
                computed.append(chunk)
                yield chunk, answers

        return work

    with pytest.raises(KeyboardInterrupt):
        make_map(raster, "parts/map.gpkg", workers=backwards(4), exact=True)
    done = make_map(raster, "parts/map.gpkg", workers=backwards(99), exact=True)
    assert sorted(computed) == [0, 1, 2, 3, 4, 5]
    assert {file.name: file.read_bytes() for file in done.files} == whole
    with pytest.raises(KeyboardInterrupt):
        make_map(raster, "parts/map.gpkg", workers=backwards(4), exact=True)
    make_map(raster, "parts/map.gpkg", workers=backwards(99), overlap=0.5)  # other work: nothing of it is used
    assert len(computed) == 6 + 4 + 12


def test_bad_targets_are_refused(make_map: Any, write_raster: Any, picture: Any) -> None:
    raster = write_raster(picture, "map.tif")
    with pytest.raises(RasterError, match=r"gpkg or \.geojson"):
        make_map(raster, "map.shp")
    with pytest.raises(RasterError, match="would overwrite"):
        make_map(raster, "map.gpkg")


@pytest.mark.parametrize(("text", "meaning"), [("80m", (80, "m")), ("256", (256, "px")), (" 12.5 px", (12.5, "px"))])
def test_tiles_are_in_metres_or_pixels(text: str, meaning: Any) -> None:
    assert parse_tile(text) == meaning


@pytest.mark.parametrize("text", ["", "0", "-3m", "3km", "m"])
def test_other_tiles_are_refused(text: str) -> None:
    with pytest.raises(RasterError, match="`tile` takes"):
        parse_tile(text)


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def _flip(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[raw.index(b"NUMPY") + 130] ^= 16  # behind the header of the first array
    path.write_bytes(raw)


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _folder(path: Path) -> None:
    path.unlink()
    (path / "inner").mkdir(parents=True)


def _save(change: Any) -> Any:
    def damage(path: Path) -> None:
        with np.load(path) as arrays:
            kept = dict(arrays)
        with path.open("wb") as file:
            np.savez(file, **change(kept))

    return damage


DAMAGES = [
    _truncate,
    _flip,
    _empty,
    _folder,
    lambda path: path.write_bytes(b"no archive"),
    lambda path: np.save(path.open("wb"), np.zeros(3)),
    lambda path: path.write_bytes(pickle.dumps(0)),
    _save(lambda kept: {**kept, "angles": np.array([None, {}], object)}),  # a pickle inside
    _save(lambda kept: {**kept, "angles": kept["angles"][:-1]}),
    _save(lambda kept: {**kept, "probabilities": kept["probabilities"][:, 1:]}),
    _save(lambda kept: {**kept, "valid": kept["valid"].astype(np.float64)}),
    _save(lambda kept: {"angles": kept["angles"]}),
]


@pytest.fixture
def half_done(
    make_map: Any, write_raster: Any, picture: Any, classifier: SceneClassifier, monkeypatch: pytest.MonkeyPatch
) -> Any:
    """A map of 6 parts without its last one, and what finishes it: files' bytes and the parts that were computed."""
    monkeypatch.setattr("mgcap.geo.plan.CHUNK", 2)
    raster = write_raster(picture)
    whole = {file.name: file.read_bytes() for file in make_map(raster, "whole/map.gpkg", exact=True).files}
    computed: list[int] = []

    def stopping(last: int) -> Any:
        def work(plan: Plan, chunks: Sequence[int]) -> Iterator[tuple[int, Answers]]:
            for chunk in chunks:
                if chunk == last:
                    raise KeyboardInterrupt
                computed.append(chunk)
                yield from compute_here(classifier)(plan, [chunk])

        return work

    with pytest.raises(KeyboardInterrupt):
        make_map(raster, "parts/map.gpkg", workers=stopping(5), exact=True)
    computed.clear()

    class Lines(Progress):
        def __init__(self) -> None:
            self.lines: list[str] = []

        def say(self, line: str) -> None:
            self.lines.append(line)

    def finish() -> tuple[bool, list[int], list[str]]:
        said = Lines()
        done = make_map(raster, "parts/map.gpkg", workers=stopping(99), progress=said, exact=True)
        return {file.name: file.read_bytes() for file in done.files} == whole, computed, said.lines

    return finish


@pytest.mark.parametrize("damages", [DAMAGES[:4], DAMAGES[4:8], DAMAGES[8:]])
def test_damaged_parts_are_computed_again_and_no_others(half_done: Any, tmp_path: Path, damages: Any) -> None:
    for number, damage in enumerate(damages):
        damage(tmp_path / f"parts/map.gpkg.parts/{number:06d}.npz")
    same, computed, said = half_done()
    assert same
    assert computed == [0, 1, 2, 3, 5]
    assert said[:2] == [
        "resuming: 1 of 6 parts of the map are done",
        "4 parts of the map are damaged and will be computed again",
    ]


def _whole_folder(path: Path) -> None:
    shutil.rmtree(path.parent)
    path.parent.write_text("a file in the folder's place")


@pytest.mark.parametrize(
    "damage",
    [
        _truncate,
        _folder,
        _whole_folder,
        lambda path: path.write_bytes(b"\xff\xfe{"),
        lambda p: p.write_text("[" * 99999),
    ],
)
def test_a_damaged_plan_is_no_plan(half_done: Any, tmp_path: Path, damage: Any) -> None:
    damage(tmp_path / "parts/map.gpkg.parts/plan.json")
    same, computed, _ = half_done()
    assert same
    assert computed == [0, 1, 2, 3, 4, 5]


SITE = 'LOCAL_CS["site",UNIT["metre",1],AXIS["Easting",EAST],AXIS["Northing",NORTH]]'


@pytest.mark.parametrize(
    ("crs", "transform", "square"),
    [
        ("EPSG:3832", (0.5, 0, 3_339_535, 0, -0.5, 0), 0.25),
        ("EPSG:3460", (0.5, 0, 2_133_030, 0, -0.5, 4_000_000), 0.25),
        ("EPSG:4326", (4e-6, 0, 180 - 4e-4, 0, -4e-6, 3e-4), 16 * 0.11132 * 0.110574),
        ("EPSG:4326", (4e-6, 0, 360 - 4e-4, 0, -4e-6, 3e-4), 16 * 0.11132 * 0.110574),
        ("EPSG:3413", (0.5, 0, -50, 0, -0.5, 37.5), 0.25 / 0.9698**2),  # the pole inside
        (SITE, (0.5, 0, 100, 0, -0.5, 200), 0.25),
    ],
)
@pytest.mark.parametrize(("name", "exact"), [("map.gpkg", True), ("map.gpkg", False), ("map.geojson", False)])
def test_maps_at_the_seams_of_the_earth(
    make_map: Any, write_raster: Any, picture: Any, crs: str, transform: Any, square: float, name: str, exact: bool
) -> None:
    import shapely

    raster = write_raster(picture, crs=crs, transform=Affine(*transform))
    done = make_map(raster, name, tile="64px", exact=exact)
    unit = "area_units2" if crs == SITE else "area_m2"
    assert done.areas.sum() == pytest.approx(150 * 200 * square, rel=1e-3)
    meta, _, geometry, values = pyogrio.raw.read(done.files[0], layer="scenes")
    fields = dict(zip(meta["fields"], values, strict=True))
    shapes = shapely.from_wkb(geometry)
    assert shapely.is_valid(shapes).all()
    assert fields[unit].sum() == pytest.approx(done.areas.sum(), rel=1e-4)
    with rasterio.open(raster) as given, rasterio.open(done.files[1]) as classes:
        assert classes.crs == given.crs
        assert (classes.read(1) == done.found.classes + 1).all()
        assert classes.transform.c == given.transform.c
        if name == "map.gpkg":  # polygons stay in the raster's own coordinates
            assert rasterio.CRS.from_user_input(meta["crs"]).is_geographic == given.crs.is_geographic
            left, lower, right, upper = given.bounds
            assert shapely.total_bounds(shapes) == pytest.approx((left, lower, right, upper))
    with Image.open(done.files[3]) as image:
        assert min(image.size) > 300
    lines = done.files[4].read_text().splitlines()
    assert lines[0] == f"class,cells,{unit},share"
    assert sum(float(line.split(",")[2]) for line in lines[1:]) == pytest.approx(done.areas.sum(), rel=1e-4)


def test_a_class_called_unknown_keeps_its_name(
    classifier: SceneClassifier, model_file: Path, write_raster: Any, picture: Any, tmp_path: Path
) -> None:
    model, said = copy.copy(classifier), Lines()
    model.classes_ = np.array([*classifier.classes_[:-1], "unknown"])
    raster, out = write_raster(picture), tmp_path / "map.gpkg"
    done = map_raster(model, model_file, raster, out, progress=said)
    assert done.classes == tuple(model.classes_) and not done.found.unknown.any()
    assert any("a class of the model is called 'unknown'" in line for line in said.lines)
    with pytest.raises(MgcapError, match="a class of the model is called 'unknown'"):
        map_raster(model, model_file, raster, out, unknown=0.01)
