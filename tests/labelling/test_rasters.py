"""From rasters and drawn labels to a model, and to one that knows more."""

from __future__ import annotations

from pathlib import Path

import geopandas
import numpy as np
import pytest
import rasterio
import torch
from shapely.geometry import LineString, Point, Polygon, box

from mgcap import SceneClassifier
from mgcap.errors import DataError, MgcapError, RasterError
from mgcap.geo.mapping import map_raster
from mgcap.inference.examples import FAR
from mgcap.labelling.growing import grow
from mgcap.labelling.rasters import block_side, draw_examples, fit_raster
from mgcap.labelling.teaching import teach
from tests.conftest import Write

#: Columns where stripes, noise and plain ground begin.
EDGES = (0, 192, 384, 576)
NAMES = ("stripes", "noise", "plain")


@pytest.fixture
def raster(write_raster: Write) -> Path:
    """Three strips of land, each three tiles of 32 m wide and six high."""
    rng = np.random.default_rng(0)
    pixels = np.zeros((3, 384, 576), np.uint8)
    pixels[:, :, :192] = 120 + 80 * (np.arange(192) // 8 % 2)
    pixels[:, :, 192:384] = rng.integers(0, 256, (3, 384, 192))
    pixels[:, :, 384:] = np.array([60, 140, 60])[:, None, None] + rng.integers(-9, 10, (3, 384, 192))
    return write_raster(pixels)


def _ground(x: float, y: float, x1: float, y1: float) -> Polygon:
    """A box in pixels, in coordinates."""
    return box(500_000 + x / 2, 5_600_000 - y1 / 2, 500_000 + x1 / 2, 5_600_000 - y / 2)


def _labels(names: tuple[str, ...] = NAMES, top: int = 0, low: int = 384) -> geopandas.GeoDataFrame:
    """What is well inside of the strips, from one row of pixels to another."""
    shapes = [_ground(EDGES[NAMES.index(name)] + 32, top, EDGES[NAMES.index(name) + 1] - 32, low) for name in names]
    return geopandas.GeoDataFrame({"class": list(names)}, geometry=shapes, crs="EPSG:25832")


def _fit(raster: Path, labels: object, model_file: Path, tmp_path: Path, **more):
    given = {"base": model_file, "folder": tmp_path, "block": "32m", "cells": 2, **more}
    return fit_raster(raster, labels, **given)


def test_a_model_of_ones_own_classes_maps_the_rest(raster, model_file, tmp_path):
    taught = _fit(raster, _labels(low=200), model_file, tmp_path)
    classifier = taught.classifier
    assert classifier.classes_.tolist() == ["noise", "plain", "stripes"]
    assert taught.estimate is not None and taught.estimate.value > 0.9 and taught.estimate.high <= 1
    assert taught.random is not None and {name: n > 10 for name, (n, _) in taught.by_class.items()} == dict.fromkeys(
        NAMES, True
    )
    path = tmp_path / "own.mgcap"
    classifier.save(path)
    done = map_raster(SceneClassifier.load(path), path, raster, tmp_path / "map.gpkg", cells=2, unknown=0)
    middles = (np.arange(18) + 0.5) * 32
    truth = np.array([["stripes", "noise", "plain"][int(x // 192)] for x in middles])
    inner = np.isin(np.arange(18), [1, 2, 3, 4, 7, 8, 9, 10, 13, 14, 15, 16])
    mapped = np.array(done.classes)[done.found.classes][8:, inner]
    assert (mapped == truth[inner]).mean() > 0.97


def test_what_a_model_was_taught_by_is_in_its_file(raster, model_file, tmp_path):
    taught = _fit(raster, _labels(), model_file, tmp_path)
    path = tmp_path / "own.mgcap"
    taught.classifier.save(path)
    loaded = SceneClassifier.load(path)
    assert loaded.examples_ is not None and torch.equal(loaded.examples_.vectors, taught.examples.vectors)
    said = loaded.provenance_["taught"]
    assert said["rasters"] == ["scene.tif"] and said["labels"] == {n: c for n, (c, _) in taught.by_class.items()}
    assert loaded.metrics_["accuracy_blocks"]["value"] == taught.estimate.value
    assert loaded.limits(0.05).distance < 2 and loaded.sample_.pictures() is not None
    without = _fit(raster, _labels(), model_file, tmp_path, keep=False).classifier
    without.save(path)
    assert SceneClassifier.load(path).examples_ is None
    with pytest.raises(MgcapError, match="carries no examples"):
        grow(without, remove=["plain"])


def test_growing_is_training_from_scratch(raster, model_file, tmp_path):
    """In two steps or in one: the same examples, the same head."""
    base = _fit(raster, _labels(NAMES[:2]), model_file, tmp_path).classifier
    base.save(tmp_path / "two.mgcap")
    base = SceneClassifier.load(tmp_path / "two.mgcap")
    drawn = draw_examples(raster, _labels(NAMES[2:]), base=base, folder=tmp_path, cells=2)
    grown = grow(base, drawn)
    whole = _fit(raster, _labels(), model_file, tmp_path)
    assert grown.added == ("plain",) and grown.gone == ()
    assert grown.taught.classifier.classes_.tolist() == whole.classifier.classes_.tolist()
    for name in ("weight", "bias"):
        ours, theirs = (getattr(t.classifier.model_.head, name) for t in (grown.taught, whole))
        assert torch.allclose(ours, theirs, rtol=0, atol=1e-6)
    assert grown.before is not None and grown.before.value == 0 and grown.after is not None and grown.after.value > 0.9
    assert grown.taught.estimate == whole.estimate


def _same_head(grown, whole) -> bool:
    ours, theirs = (own.classifier.model_.head for own in (grown.taught, whole))
    same = all(torch.allclose(getattr(ours, n), getattr(theirs, n), rtol=0, atol=1e-6) for n in ("weight", "bias"))
    return same and grown.taught.classifier.classes_.tolist() == whole.classifier.classes_.tolist()


def test_what_old_and_new_labels_contradict_each_other_about_is_left_out(raster, model_file, tmp_path):
    """Cells that were stripes and are plain in the new file: as if both files had been there from the beginning."""
    first, second = _labels(), _labels(("stripes", "plain"), top=128, low=256)
    second["class"] = ["plain", "plain"]
    base = _fit(raster, first, model_file, tmp_path).classifier
    grown = grow(base, draw_examples(raster, second, base=model_file, folder=tmp_path, cells=2))
    whole = _fit(raster, [first, second], model_file, tmp_path)
    contradicted = 4 * 4  # cells of 32 pixels
    assert grown.left_out == {"cells with labels of several classes": contradicted}
    assert len(grown.taught.examples) == len(whole.examples) == len(base.examples_) - contradicted
    assert _same_head(grown, whole) and grown.taught.estimate == whole.estimate
    old, new = (own.classifier.provenance_["taught"] for own in (whole, grown.taught))
    assert new["labels"] == old["labels"] == {name: count for name, (count, _) in whole.by_class.items()}
    assert new["left_out"] == old["left_out"] == grown.left_out
    assert new["rasters"] == ["scene.tif"] and new["files"] == ["a table"] * 2 and new["extended"] == 1


def test_what_new_labels_contradict_themselves_about_is_no_example_any_more(raster, model_file, tmp_path):
    first, second = _labels(), _labels(("stripes", "plain"), top=128, low=256)
    second.geometry = [second.geometry[0]] * 2
    base = _fit(raster, first, model_file, tmp_path).classifier
    grown = grow(base, draw_examples(raster, [second, _labels(NAMES[1:2])], base=model_file, folder=tmp_path, cells=2))
    whole = _fit(raster, [first, second], model_file, tmp_path)
    assert len(grown.taught.examples) == len(base.examples_) - 4 * 4 and _same_head(grown, whole)
    old, new = (own.classifier.provenance_["taught"]["left_out"] for own in (whole, grown.taught))
    assert new == old == {"cells with labels of several classes": 4 * 4}


def test_rasters_without_a_place_lie_beside_those_that_were_there(write_raster, raster, model_file, tmp_path):
    """One after the other or together: the same places, the same blocks; what is given again lies where it lay."""
    with rasterio.open(raster) as dataset:
        pixels = dataset.read()
    paths = [write_raster(own, f"{name}.tif", crs=None) for name, own in (("one", pixels), ("two", pixels[:, ::-1]))]
    tables = [tmp_path / "upper.csv", tmp_path / "lower.csv"]
    for table, low in zip(tables, (0, 192), strict=True):
        names = [(name, x + 32 * c + 20, 32 * r + low + 4) for name, x in zip(NAMES, EDGES, strict=False)
                 for c in range(5) for r in range(5)]  # fmt: skip
        with rasterio.open(paths[0]) as dataset:
            rows = [(name, *(dataset.transform * (x, y))) for name, x, y in names]
        table.write_text("class,x,y\n" + "".join(f"{name},{x},{y}\n" for name, x, y in rows))
    given = {"cells": 2, "folder": tmp_path}
    base = _fit(paths[0], tables[0], model_file, tmp_path, block="64px").classifier
    grown = grow(base, draw_examples(paths[1], tables[0], base=model_file, **given))
    whole = _fit(paths, tables[0], model_file, tmp_path, block="64px")
    assert torch.equal(grown.taught.examples.places, whole.examples.places)
    assert grown.left_out == {} and _same_head(grown, whole) and grown.taught.estimate == whole.estimate
    assert grown.taught.classifier.provenance_["taught"]["rasters"] == ["one.tif", "two.tif"]
    again = grow(grown.taught.classifier, draw_examples(paths[1], tables[1], base=model_file, **given))
    assert again.taught.classifier.provenance_["taught"]["rasters"] == ["one.tif", "two.tif"]
    places = again.taught.examples.places[:, 0] // FAR
    assert (places == 0).sum() == (whole.examples.places[:, 0] < FAR).sum() and places.max() == 1
    (tmp_path / "twin").mkdir()
    twin = write_raster(255 - pixels, "twin/two.tif", crs=None)
    other = grow(
        grown.taught.classifier, draw_examples(twin, tables[0], base=model_file, cells=2, folder=tmp_path / "twin")
    )
    assert other.taught.classifier.provenance_["taught"]["rasters"] == ["one.tif", "two.tif", "two.tif"]
    assert other.left_out == {} and other.taught.examples.places[:, 0].max() > 2 * FAR


def test_rasters_with_and_without_a_place_are_not_mixed(write_raster, raster, model_file, tmp_path):
    with rasterio.open(raster) as dataset:
        bare = write_raster(dataset.read(), "bare.tif", crs=None)
    with pytest.raises(RasterError, match=r"bare\.tif does not say where it lies, and others do"):
        draw_examples([raster, bare], _labels(), base=model_file, folder=tmp_path, cells=2)
    table = tmp_path / "labels.csv"
    table.write_text("class,x,y\na,500010,5599990\n")
    base = _fit(raster, _labels(), model_file, tmp_path).classifier
    drawn = draw_examples(bare, table, base=model_file, folder=tmp_path, cells=2)
    with pytest.raises(DataError, match=r"bare\.tif has no place, and the rasters of the model have one"):
        grow(base, drawn)


def test_what_changed_is_said_for_each_class(raster, model_file, tmp_path):
    """Against the answers of the models themselves, class by class."""
    first = _fit(raster, _labels(NAMES[:2], low=200), model_file, tmp_path)
    drawn = draw_examples(raster, _labels(("plain", "noise"), top=200), base=model_file, folder=tmp_path, cells=2)
    grown = grow(first.classifier, drawn, rename={"stripes": "field"})
    assert list(grown.changes) == ["field", "noise", "plain"]
    for name, before in (("field", "stripes"), ("noise", "noise"), ("plain", "")):
        change = grown.changes[name]
        assert (change.labels_before, change.before) == first.by_class.get(before, (0, None))
        assert (change.labels_now, change.now) == grown.taught.by_class[name]
    merged = grow(grown.taught.classifier, merge={"land": ["field", "plain"]}).changes
    assert (
        merged["land"].labels_before
        == merged["land"].labels_now
        == sum(grown.changes[name].labels_now for name in ("field", "plain"))
    )


def test_classes_are_renamed_merged_and_removed(raster, model_file, tmp_path):
    base = _fit(raster, _labels(), model_file, tmp_path).classifier
    renamed = grow(base, rename={"plain": "Wiese"})
    assert renamed.taught.classifier.classes_.tolist() == ["Wiese", "noise", "stripes"]
    assert renamed.added == ("Wiese",) and renamed.gone == ("plain",)
    merged = grow(base, merge={"land": ["plain", "stripes"]}).taught
    own = _labels()
    own["class"] = ["land", "noise", "land"]
    scratch = _fit(raster, own, model_file, tmp_path)
    assert merged.classifier.classes_.tolist() == ["land", "noise"]
    assert torch.allclose(merged.classifier.model_.head.weight, scratch.classifier.model_.head.weight, atol=1e-6)
    removed = grow(base, remove=["noise"]).taught
    assert removed.classifier.classes_.tolist() == ["plain", "stripes"]
    for wrong, words in (
        ({"rename": {"plan": "x"}}, "no class 'plan' .did you mean 'plain'"),
        ({"rename": {"plain": "noise"}}, "two classes 'noise'; `merge`"),
        ({"rename": {"plain": "x"}, "remove": ["plain"]}, "changed twice"),
        ({"remove": ["plain", "noise"]}, "only the class 'stripes'"),
    ):
        with pytest.raises(DataError, match=words):
            grow(base, **wrong)


def test_the_order_of_labels_and_rasters_does_not_count(raster, model_file, tmp_path):
    upper, lower = _labels(low=192), _labels(top=192)
    one = _fit(raster, [upper, lower], model_file, tmp_path).classifier
    two = _fit(raster, [lower, upper.iloc[::-1]], model_file, tmp_path).classifier
    assert torch.equal(one.model_.head.weight, two.model_.head.weight)
    assert torch.equal(one.sample_.vectors, two.sample_.vectors)


def test_a_class_that_occurs_once_is_no_obstacle(raster, model_file, tmp_path):
    labels = _labels()
    labels.loc[3] = ["pond", _ground(400, 300, 401, 301).centroid]
    labels.loc[3, "geometry"] = Point(500_000 + 200.0, 5_600_000 - 8.0)
    labels.loc[2, "geometry"] = _ground(416, 100, 544, 384)
    taught = _fit(raster, labels, model_file, tmp_path)
    assert taught.by_class["pond"][0] == 1 and taught.estimate is not None


def test_few_labels_give_no_or_wide_figures(raster, model_file, tmp_path):
    few = geopandas.GeoDataFrame(
        {"class": ["a", "b"]},
        geometry=[Point(500_020, 5_600_000 - 20), Point(500_250, 5_600_000 - 20)],
        crs="EPSG:25832",
    )
    assert _fit(raster, few, model_file, tmp_path).estimate is None
    with pytest.raises(DataError, match="only the class 'a', and a model needs two"):
        _fit(raster, few[:1], model_file, tmp_path)


@pytest.mark.parametrize(
    ("dtype", "names"), [("string", ["a", None, "b"]), ("Int64", [1, None, 2]), ("float64", [1.0, None, 2.0])]
)
def test_tables_have_columns_of_any_kind(raster, model_file, tmp_path, dtype, names):
    labels = _labels()
    labels["class"] = type(labels["class"])(names, dtype=dtype)
    drawn = draw_examples(raster, labels, base=model_file, folder=tmp_path, cells=2)
    assert drawn.classes == (("a", "b") if dtype == "string" else ("1", "2"))
    assert drawn.labelled[0].left_out == {"features without a class": 1}


def test_labels_that_teach_nothing_get_one_sentence(raster, model_file, tmp_path):
    away = _labels().set_crs("EPSG:25833", allow_override=True)
    with pytest.raises(DataError, match=r"labels no cell of scene\.tif: .* outside of the raster"):
        _fit(raster, away, model_file, tmp_path)
    with pytest.raises(DataError, match="no column 'kind'; it has class, geometry"):
        _fit(raster, _labels(), model_file, tmp_path, field="kind")
    with pytest.raises(DataError, match="takes vector files or GeoDataFrames"):
        _fit(raster, 3, model_file, tmp_path)
    line = geopandas.GeoDataFrame(
        {"class": ["a"]}, geometry=[LineString([(500_000, 5_599_990), (500_288, 5_599_990)])], crs="EPSG:25832"
    )
    drawn = draw_examples(raster, line, base=model_file, folder=tmp_path, cells=2)
    assert len(drawn.examples) == 18


def test_blocks_have_a_side_in_metres_or_pixels(raster, model_file, tmp_path):
    drawn = draw_examples(raster, _labels(), base=model_file, folder=tmp_path, cells=2)
    tile = block_side(drawn.indexes, None) / 4
    assert tile == pytest.approx(32, rel=0.01)
    assert block_side(drawn.indexes, "100m") == 100
    assert block_side(drawn.indexes, "128px") == pytest.approx(64, rel=0.01)
    for wrong, words in (("3m", "smaller than a cell"), ("many", "`block` takes metres or pixels")):
        with pytest.raises(RasterError, match=words):
            block_side(drawn.indexes, wrong)


def test_tiles_of_ones_own_size_are_what_the_model_remembers(raster, model_file, tmp_path):
    taught = _fit(raster, _labels(), model_file, tmp_path, tile="48m")
    assert taught.classifier.imagery_.side == 96 and taught.classifier.imagery_.resolution == pytest.approx(
        0.5, rel=0.01
    )
    taught.classifier.save(tmp_path / "own.mgcap")
    done = map_raster(
        SceneClassifier.load(tmp_path / "own.mgcap"), tmp_path / "own.mgcap", raster, tmp_path / "m.gpkg", cells=2
    )
    assert done.plan.cell == (48, 48)


def test_examples_of_another_network_are_refused(raster, model_file, tmp_path):
    drawn = draw_examples(raster, _labels(), base=model_file, folder=tmp_path, cells=2)
    base = SceneClassifier.load(model_file)
    short = type(drawn.examples)(drawn.examples.vectors[:, :4], drawn.examples.targets, drawn.examples.places)
    with pytest.raises(MgcapError, match="other vectors"):
        teach(base, short, drawn.classes, block=32)
