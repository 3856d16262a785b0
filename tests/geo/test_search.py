from __future__ import annotations

import json
import os
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyogrio
import pytest
import rasterio
import rasterio.warp
import shapely
import tifffile
import torch
from PIL import Image
from rasterio.transform import from_origin

from mgcap.classifier import SceneClassifier
from mgcap.errors import RasterError
from mgcap.geo import approximate, nearest
from mgcap.geo import search as searching
from mgcap.geo.blocks import Cells, IndexPlan
from mgcap.geo.hits import check_coordinates, contact_sheet, write_hits, write_sheet
from mgcap.geo.index import FORMAT, About, Index, create_index, open_index
from mgcap.geo.indexing import index_raster
from mgcap.geo.nearest import Gallery
from mgcap.geo.search import Found, search
from mgcap.geo.sources import cut_tile
from mgcap.inference.projection import Projection


@pytest.fixture(scope="module")
def classifier(model_file: Path) -> SceneClassifier:
    return SceneClassifier.load(model_file, engine="torch")


@pytest.fixture
def indexed(classifier: SceneClassifier, model_file: Path, tmp_path: Path) -> Any:
    def make(raster: Path, name: str = "scene.zarr", **options: Any) -> Index:
        return index_raster(classifier, model_file, raster, tmp_path / name, **options)

    return make


@pytest.fixture
def drawn(tmp_path: Path) -> Any:
    """Makes an index with given vectors [rows, columns, p], without a raster; tiles are 2 x 2 cells of 10 pixels."""

    def make(vectors: Any, name: str = "drawn.zarr", valid: Any = None, block: int = 7, **about: Any) -> Index:
        rows, columns, length = vectors.shape
        plan = IndexPlan(
            raster="/nowhere/scene.tif", size=(10 * columns, 10 * rows), changed=(0, 1), cell=(10, 10),
            cells_in_tile=2, shape=(20, 20), bands=(1, 2, 3), black=0, white=255, min_valid=0.5, model="",
            model_fingerprint="", engine="torch", chunk=64, block=block, dense=True,
        )  # fmt: skip
        said = {"crs": "", "transform": (10, 0, 0, 0, -10, 0), "descriptor": "d", "projection": "", "angles": (0, 180)}
        index = create_index(tmp_path / name, About(format=FORMAT, plan=plan, **{**said, **about}), length)
        known = np.full((rows, columns), 255, np.uint8) if valid is None else valid
        for chunk in range(plan.chunks):
            place = plan.cells(chunk)
            turned = np.zeros((rows, columns), np.uint16)[place]
            index.write(chunk, Cells(vectors[place].astype(np.float16), turned, known[place]))
        return index

    return make


def _cosines(vectors: Any, queries: Any) -> Any:
    """The oracle: all in double precision."""
    v, q = (own.astype(np.float64) / np.linalg.norm(own.astype(np.float64), axis=-1, keepdims=True)
            for own in (vectors.astype(np.float16), queries))  # fmt: skip
    return (v @ q.T).max(-1)


def test_the_best_cells_are_those_of_a_plain_comparison(drawn: Any, rng: np.random.Generator) -> None:
    vectors, queries = rng.normal(size=(23, 17, 12)), rng.normal(size=(3, 12)).astype(np.float32)
    valid = (rng.random((23, 17)) > 0.2).astype(np.uint8)
    scores = np.where(valid, _cosines(vectors, queries), -9)
    found = Gallery.open([drawn(vectors, valid=valid)]).best(torch.from_numpy(queries), 40, thin=False)
    order = np.argsort(-scores.ravel())[:40]
    assert [17 * hit.row + hit.column for hit in found] == order.tolist()
    assert np.allclose([hit.score for hit in found], scores.ravel()[order], atol=1e-5)


def test_few_scores_are_held_and_equal_ones_come_in_order(drawn: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nearest, "HELD", 0)
    monkeypatch.setattr(nearest, "KEPT_BYTES", 0)
    vectors = np.zeros((20, 20, 2))
    vectors[..., 0] = 1
    vectors[15, 15] = [3, -1]
    found = Gallery.open([drawn(vectors)]).best(torch.tensor([[3.0, -1.0]]), 4, thin=False)
    assert [(hit.row, hit.column) for hit in found] == [(15, 15), (0, 0), (0, 1), (0, 2)]


def test_hits_do_not_overlap(drawn: Any, rng: np.random.Generator) -> None:
    vectors, query = rng.normal(size=(19, 15, 6)), rng.normal(size=(1, 6)).astype(np.float32)
    found = Gallery.open([drawn(vectors)]).best(torch.from_numpy(query), 12)
    scores = _cosines(vectors, query)
    middle = [np.clip(10 * np.arange(n) + 5.0, 10, 10 * n - 10) for n in scores.shape]  # tiles stay in the raster
    kept: list[tuple[int, int]] = []
    for row, column in zip(*np.unravel_index(np.argsort(-scores.ravel()), scores.shape), strict=True):
        far = all(abs(middle[0][row] - middle[0][r]) >= 20 or abs(middle[1][column] - middle[1][c]) >= 20
                  for r, c in kept)  # fmt: skip
        if far and len(kept) < 12:
            kept.append((row, column))
    assert [(hit.row, hit.column) for hit in found] == kept


def test_the_mean_of_a_projection_counts(drawn: Any, rng: np.random.Generator, monkeypatch: Any) -> None:
    axes = np.linalg.qr(rng.normal(size=(9, 4)))[0].T.astype(np.float32)
    projection = Projection(torch.from_numpy(rng.normal(size=9).astype(np.float32)), torch.from_numpy(axes))
    vectors = rng.normal(size=(8, 8, 4))
    index = drawn(vectors, projection=projection.fingerprint)
    query = torch.from_numpy(rng.normal(size=(1, 4)).astype(np.float32))
    with pytest.raises(RasterError, match="a projection that this version does not know"):
        Gallery.open([index]).best(query, 1)
    monkeypatch.setattr(nearest, "shipped_projection", lambda fingerprint: projection)
    assert projection.mean is not None
    moved = axes @ projection.mean.numpy()
    scores = _cosines_of(vectors.astype(np.float16) + moved, query.numpy() + moved)
    (best,) = Gallery.open([index]).best(query, 1)
    assert 8 * best.row + best.column == scores.argmax()
    assert best.score == pytest.approx(scores.max(), abs=1e-5)


def _cosines_of(vectors: Any, query: Any) -> Any:
    return (vectors @ query[0]) / np.linalg.norm(vectors, axis=-1) / np.linalg.norm(query)


def test_a_million_cells_and_more_are_searched_by_faiss(
    drawn: Any, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = rng.normal(size=(20, 16))
    vectors = kinds[rng.integers(0, 20, (60, 60))] + 0.3 * rng.normal(size=(60, 60, 16))
    index, query = drawn(vectors, block=30), torch.from_numpy(kinds[:2].astype(np.float32))
    exact = Gallery.open([index]).best(query, 30, thin=False)
    monkeypatch.setattr(nearest, "EXACT_CELLS", 1000)
    monkeypatch.setattr(nearest, "LARGE_INDEX", 1000)
    built: list[int] = []
    build = approximate._build
    monkeypatch.setattr(approximate, "_build", lambda *given: built.append(1) or build(*given))

    def near() -> list[Any]:
        return Gallery.open([index]).best(query, 30, thin=False)

    found = near()
    places = [{(hit.row, hit.column) for hit in hits} for hits in (exact, found)]
    assert len(places[0] & places[1]) >= 27
    score = {(hit.row, hit.column): hit.score for hit in exact}
    assert all(abs(hit.score - score.get((hit.row, hit.column), hit.score)) < 0.01 for hit in found)
    assert near() == found and len(built) == 1  # it was kept
    path = Path(f"{index.name}.faiss")
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    assert near() == found and len(built) == 2
    (Path(os.environ["MGCAP_HOME"]) / "search.key").unlink()  # another user's
    assert near() == found and len(built) == 3
    index.write(0, Cells(*(part[:30, :30] for part in (vectors.astype(np.float16)[::-1], *_plain(60)))))
    near()
    assert len(built) == 4


@pytest.mark.parametrize(("known", "approximately"), [(40, False), (1400, True)])
def test_cells_without_data_do_not_make_an_index_large(
    drawn: Any, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, known: int, approximately: bool
) -> None:
    monkeypatch.setattr(nearest, "EXACT_CELLS", 1000)
    monkeypatch.setattr(nearest, "LARGE_INDEX", 1000)
    vectors, valid = rng.normal(size=(60, 60, 8)), np.zeros((60, 60), np.uint8)
    valid.flat[rng.choice(3600, known, replace=False)] = 255
    index = drawn(vectors, valid=valid, block=30)
    row, column = np.argwhere(valid)[17]
    query = torch.from_numpy(vectors[row, column][None].astype(np.float32))
    (best,) = Gallery.open([index]).best(query, 1)
    assert (best.row, best.column) == (row, column)
    assert Path(f"{index.name}.faiss").exists() == approximately


def _plain(side: int) -> tuple[Any, Any]:
    return np.zeros((side, side), np.uint16), np.full((side, side), 255, np.uint8)


def test_indexes_that_cannot_be_compared_are_refused(drawn: Any, tmp_path: Path, rng: np.random.Generator) -> None:
    one, other = (
        drawn(rng.normal(size=(5, 5, 4)), "a.zarr"),
        drawn(rng.normal(size=(5, 5, 4)), "b.zarr", descriptor="e"),
    )
    with pytest.raises(RasterError, match=r"b\.zarr has another descriptor than .*a\.zarr"):
        Gallery.open([one, other])
    with pytest.raises(RasterError, match="at least one index"):
        Gallery.open([])
    with pytest.raises(RasterError, match="there is no index"):
        Gallery.open([tmp_path / "none.zarr"])


def _rotated(values: Any, angle: float) -> Any:
    image = Image.fromarray(np.moveaxis(values, 0, -1))
    return np.moveaxis(np.asarray(image.rotate(angle, Image.Resampling.BICUBIC, fillcolor=(100, 100, 100))), -1, 0)


@pytest.fixture
def things(rng: np.random.Generator) -> Any:
    """A dull raster [3, 384, 384] with stripes around (x, y) = (150, 230), and squares of their colours elsewhere."""
    values = rng.integers(90, 110, (3, 384, 384)).astype(np.uint8)
    y, x = np.mgrid[:384, :384]
    for cx, cy, pattern in ((150, 230, x // 6 % 2), (240, 130, (x // 6 + y // 6) % 2)):
        disc = (x - cx) ** 2 + (y - cy) ** 2 < 50**2
        for band, (dark, light) in enumerate(((20, 250), (60, 200), (30, 90))):
            values[band][disc] = np.where(pattern, dark, light)[disc]
    return values


def test_a_rotated_query_and_a_rotated_raster_have_the_place(
    classifier: SceneClassifier, indexed: Any, write_raster: Any, things: Any
) -> None:
    x, y = 150, 230
    plain, turned = (
        indexed(write_raster(v, f"{n}.tif"), f"{n}.zarr") for n, v in enumerate((things, _rotated(things, 37)))
    )
    around = things[:, y - 64 : y + 64, x - 64 : x + 64]
    queries = [np.moveaxis(_rotated(around, angle)[:, 32:96, 32:96], 0, -1) for angle in (0, 37, 200)]
    cos, sin = np.cos(np.radians(37)), np.sin(np.radians(37))
    there = 192 + cos * (x - 192) + sin * (y - 192), 192 - sin * (x - 192) + cos * (y - 192)
    for index, place in ((plain, (x, y)), (turned, there)):
        for query in queries:
            best = search([index], like=query, classifier=classifier, top=1).hits[0]
            assert abs(2 * (best.x - 500_000) - place[0]) < 64 and abs(2 * (5_600_000 - best.y) - place[1]) < 64


def test_an_image_is_looked_at_between_the_rotations_of_the_model(
    classifier: SceneClassifier, indexed: Any, write_raster: Any, things: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = indexed(write_raster(things))
    query = np.moveaxis(_rotated(things[:, 166:294, 86:214], 37)[:, 32:96, 32:96], 0, -1)
    scores = []
    for step in (180.0, 15.0):
        monkeypatch.setattr(searching, "STEP", step)
        scores.append(search([index], like=query, classifier=classifier, top=1).hits[0].score)
    assert scores[1] > scores[0]
    upside_down = search([index], like=query[::-1, ::-1].copy(), classifier=classifier, top=5).hits
    upright = search([index], like=query, classifier=classifier, top=5).hits
    assert [replace(hit, score=0) for hit in upside_down] == [replace(hit, score=0) for hit in upright]
    assert [hit.score for hit in upside_down] == pytest.approx([hit.score for hit in upright], abs=1e-4)


def test_a_place_is_its_own_best_hit(
    classifier: SceneClassifier, indexed: Any, write_raster: Any, picture: Any
) -> None:
    index = indexed(write_raster(picture))
    for given in (None, classifier):
        found = search([index], at=(500_041, 5_599_961), classifier=given, top=5)
        assert (found.hits[0].row, found.hits[0].column) == (4, 5)
        assert found.hits[0].score == pytest.approx(1, abs=1e-3)
        assert [hit.rank for hit in found.hits] == list(range(1, len(found.hits) + 1))
        assert found.query is not None and found.query.shape == (64, 64, 3)
    degrees = rasterio.warp.transform("EPSG:25832", "EPSG:4326", [500_041], [5_599_961])
    assert (
        search([index], at=(degrees[0][0], degrees[1][0]), crs="EPSG:4326").hits[0]
        == search([index], at=(500_041, 5_599_961)).hits[0]
    )


def test_what_cannot_be_searched_for_gets_one_sentence(
    classifier: SceneClassifier, indexed: Any, write_raster: Any, picture: Any, drawn: Any, rng: np.random.Generator
) -> None:
    index = indexed(write_raster(picture))

    def told(*indexes: Index, **given: Any) -> str:
        with pytest.raises(RasterError) as error:
            search(list(indexes), **given)
        return str(error.value)

    assert told(index) == told(index, like="a.png", at=(0, 0)) == "give either `like` or `at`"
    assert "does not lie in" in told(index, at=(9, 50)) and "`crs=EPSG:4326`" in told(index, at=(9, 50))
    assert "not 'nonsense'" in told(index, at=(9, 50), crs="nonsense")
    assert "two finite numbers" in told(index, at=(float("nan"), 50))
    assert "`like` needs `classifier`" in told(index, like=np.zeros((64, 64, 3), np.uint8))
    assert "`top` takes" in told(index, at=(0, 0), top=0)
    other = drawn(rng.normal(size=(5, 5, 4)))
    assert "other descriptors" in told(other, like=np.zeros((64, 64, 3), np.uint8), classifier=classifier)
    assert "cannot be given" in told(other, at=(1, -1), crs="EPSG:4326")
    bare = drawn(rng.normal(size=(5, 5, 4)), "empty.zarr", valid=np.zeros((5, 5), np.uint8))
    assert "no data" in told(bare, at=(1, -1))
    assert "at least 8 x 8" in told(index, like=np.zeros((4, 64, 3), np.uint8), classifier=classifier)


def test_hits_as_geopackage(indexed: Any, write_raster: Any, picture: Any, tmp_path: Path) -> None:
    index = indexed(write_raster(picture))
    found = search([index], at=(500_041, 5_599_961), top=6)
    write_hits(tmp_path / "a.gpkg", found)
    write_hits(tmp_path / "b.gpkg", found)
    assert (tmp_path / "a.gpkg").read_bytes() == (tmp_path / "b.gpkg").read_bytes()
    meta, _, geometry, fields = pyogrio.raw.read(tmp_path / "a.gpkg", layer="hits")
    columns = dict(zip(meta["fields"], fields, strict=True))
    assert meta["crs"] == "EPSG:25832"
    assert columns["rank"].tolist() == list(range(1, len(found.hits) + 1))
    assert (np.diff(columns["score"]) <= 0).all()
    assert set(columns["index"]) == {index.name}
    assert set(columns["canonical_angle"]) <= {0.0, 180.0}
    shapes = shapely.from_wkb(geometry)
    assert np.allclose(shapely.area(shapes), 32 * 32)
    assert shapely.distance(shapes[0], shapely.Point(500_041, 5_599_961)) == 0
    assert shapely.area(shapely.union_all(shapes)) == pytest.approx(len(shapes) * 32 * 32)  # they do not overlap
    with sqlite3.connect(tmp_path / "a.gpkg") as database:
        assert database.execute("PRAGMA user_version").fetchone() == (10200,)


def test_rasters_of_several_zones_go_to_one_file(indexed: Any, write_raster: Any, picture: Any, tmp_path: Path) -> None:
    one = indexed(write_raster(picture))
    far = {"crs": "EPSG:32633", "transform": from_origin(400_000, 5_600_000, 0.5, 0.5)}
    other = indexed(write_raster(picture[:, ::-1], "other.tif", **far), "other.zarr")
    with pytest.raises(RasterError, match="several coordinate systems"):
        search([one, other], at=(0, 0))
    (lon,), (lat,) = rasterio.warp.transform("EPSG:32633", "EPSG:4326", [400_050], [5_599_970])
    found = search([one, other], at=(lon, lat), crs="EPSG:4326", top=8)
    assert found.hits[0].index == other.name
    write_hits(tmp_path / "both.gpkg", found)
    meta, _, geometry, _ = pyogrio.raw.read(tmp_path / "both.gpkg")
    assert meta["crs"] == "EPSG:4326"
    assert shapely.distance(shapely.from_wkb(geometry[0]), shapely.Point(lon, lat)) == 0
    assert {hit.index for hit in found.hits} == {one.name, other.name}
    check_coordinates([one, other])
    nowhere = indexed(write_raster(picture, "nowhere.tif", crs=None), "nowhere.zarr", tile="64px")
    with pytest.raises(RasterError, match="search them one by one"):
        check_coordinates([one, nowhere])


def test_contact_sheet(indexed: Any, write_raster: Any, picture: Any, tmp_path: Path) -> None:
    raster = write_raster(picture)
    found = search([indexed(raster)], at=(500_041, 5_599_961), top=50)
    axes = contact_sheet(found).axes
    assert axes[0].get_title("left").startswith("searched for")
    assert axes[1].get_title("left").startswith("1   1.000\n500044.0, 5599964.0")
    hit, index = found.hits[0], found.indexes[0]
    cut = cut_tile(index, hit.row, hit.column)
    x, y = round(2 * (hit.x - 500_000)), round(2 * (5_600_000 - hit.y))
    expected = np.moveaxis(picture[:, y - 32 : y + 32, x - 32 : x + 32], 0, -1) / 255
    assert cut is not None and np.allclose(cut, expected, atol=1e-6)
    write_sheet(tmp_path / "sheet.png", found)
    with Image.open(tmp_path / "sheet.png") as image:
        assert min(image.size) > 400
    raster.unlink()
    assert cut_tile(index, 0, 0) is None
    assert any("is not there" in text.get_text() for axes in contact_sheet(found).axes for text in axes.texts)


def test_an_index_and_its_raster_are_moved_together(
    classifier: SceneClassifier, model_file: Path, write_raster: Any, picture: Any, tmp_path: Path
) -> None:
    """The index knows the way to its raster, and nothing of the folders above."""
    (tmp_path / "a" / "rasters").mkdir(parents=True)
    write_raster(picture).rename(tmp_path / "a" / "rasters" / "scene.tif")
    out = tmp_path / "a" / "indexes" / "scene.zarr"
    made = index_raster(classifier, model_file, tmp_path / "a" / "rasters" / "scene.tif", out)
    expected = cut_tile(made, 1, 1)
    assert expected is not None and tmp_path.name not in (out / "zarr.json").read_text()
    (tmp_path / "a").rename(tmp_path / "b")
    moved = open_index(tmp_path / "b" / "indexes" / "scene.zarr")
    assert np.array_equal(cut_tile(moved, 1, 1), expected)  # type: ignore[arg-type]
    (tmp_path / "b" / "rasters" / "scene.tif").rename(tmp_path / "b" / "indexes" / "scene.tif")
    assert np.array_equal(cut_tile(moved, 1, 1), expected)  # type: ignore[arg-type]


def test_an_index_has_no_other_file_opened(
    indexed: Any, write_raster: Any, picture: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = indexed(write_raster(picture))
    said = json.loads((Path(index.name) / "zarr.json").read_text())
    plan = said["attributes"]["mgcap_index"]["plan"]
    secret = write_raster(picture[:, :, :199], "secret.tif")
    vrt = tmp_path / "scene.vrt"
    vrt.write_text("<VRTDataset/>")
    opened: list[Any] = []
    plain = rasterio.open
    monkeypatch.setattr(rasterio, "open", lambda *given, **more: opened.append(given[0]) or plain(*given, **more))
    for name, state in ((str(secret), plan["changed"]), ("/vsicurl/http://127.0.0.1:9/a.tif", plan["changed"]),
                        (str(vrt), [0, vrt.stat().st_size])):  # fmt: skip
        plan.update(raster=name, changed=state, allow_vrt=True)
        (Path(index.name) / "zarr.json").write_text(json.dumps(said))
        assert cut_tile(open_index(index.name), 0, 0) is None
    assert not opened
    about = replace(index, about=index.about.model_copy(update={"crs": 'PROJCS["x",PARAMETERFILE["a"]]'}))
    with pytest.raises(RasterError, match=r"scene\.zarr has a coordinate system that names a grid file"):
        write_hits(tmp_path / "x.gpkg", Found(search([index], at=(500_041, 5_599_961)).hits, [about], None, ""))


def test_blocks_that_are_missing_are_said(drawn: Any, rng: np.random.Generator) -> None:
    index = drawn(rng.normal(size=(9, 9, 4)))
    (Path(index.name) / "valid" / "c" / "1" / "1").unlink()
    told: list[str] = []

    class Listening(nearest.Progress):
        def say(self, line: str) -> None:
            told.append(line)

    hits = search([index], at=(5, -5), top=100, thin=False, progress=Listening()).hits
    assert len(hits) == 81 - 4
    assert "lacks 1 of 4 blocks" in told[0]
    fsspec.filesystem("memory").put(index.name, str(index.name), recursive=True)
    search([f"memory://{index.name}"], at=(5, -5), progress=Listening())
    assert told[1] == f"memory://{index.name} lacks 1 of 4 blocks, which are not searched"


def test_a_deep_image_is_read_as_its_raster_was(
    classifier: SceneClassifier, indexed: Any, write_raster: Any, picture: Any, tmp_path: Path
) -> None:
    deep = picture.astype(np.uint16) * 10 + 100
    index = indexed(write_raster(deep), scale="100,2650")
    tifffile.imwrite(tmp_path / "tile.tif", np.moveaxis(deep[:, 48:112, 48:112], 0, -1))
    found = search([index], like=tmp_path / "tile.tif", classifier=classifier, top=3)
    assert found.query is not None
    assert np.allclose(found.query, np.moveaxis(picture[:, 48:112, 48:112], 0, -1) / 255, atol=1e-6)


def test_a_place_in_two_rasters_is_found_once(drawn: Any, rng: np.random.Generator) -> None:
    """The second begins four cells further east; what both show is alike but for a little noise."""
    vectors = rng.normal(size=(8, 14, 6))
    here = {"crs": rasterio.CRS.from_epsg(25832).to_wkt()}
    a = drawn(vectors[:, :10], "a.zarr", transform=(10, 0, 500, 0, -10, 900), **here)
    b = drawn(vectors[:, 4:] * 1.01, "b.zarr", transform=(10, 0, 540, 0, -10, 900), **here)
    query = torch.from_numpy(vectors[3, 6:7]).float()
    found = Gallery.open([a, b]).best(query, 12)
    places = np.array([(near.column + 4 * near.number, near.row) for near in found])
    apart = abs(places[:, None] - places[None]).max(-1) + 9 * np.eye(len(found), dtype=int)
    assert places[0].tolist() == [6, 3] and (apart >= 2).all() and {near.number for near in found} == {0, 1}
    assert [near.score for near in found] == sorted((near.score for near in found), reverse=True)
    twice = Gallery.open([a, b]).best(query, 12, thin=False)
    assert {(near.number, near.row, near.column) for near in twice[:2]} == {(0, 3, 6), (1, 3, 2)}
    other = drawn(vectors[:, 4:], "c.zarr", transform=(10, 0, 540, 0, -10, 900), crs="")
    assert {near.number for near in Gallery.open([a, other]).best(query, 2)} == {0, 1}  # its place is not known
