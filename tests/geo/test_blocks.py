"""Cells of a block against the tiles around their middles, cut from the raster's pixels by hand."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
import torch
from rasterio.enums import Resampling
from rasterio.transform import Affine

from mgcap.classifier import SceneClassifier
from mgcap.errors import RasterError
from mgcap.geo import blocks, indexing
from mgcap.geo.blocks import Cells, IndexPlan, describe_cells
from mgcap.geo.indexing import plan_work
from mgcap.geo.opening import open_raster
from mgcap.geo.plan import MapOptions
from mgcap.geo.raster import read_window
from mgcap.inference import layout
from tests.geo.indexes import patches_file, plan_of
from tests.inference.plain import patches_backbone


@pytest.fixture(scope="module")
def patches(scenes: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[SceneClassifier, Path]]:
    """A model with one position for 8 x 8 pixels, each of which sees these alone; four rotations."""
    with patches_backbone():
        path = patches_file(tmp_path_factory.mktemp("patches") / "patches.mgcap", scenes)
        yield SceneClassifier.load(path, engine="torch"), path


@pytest.fixture(scope="module")
def deep(model_file: Path) -> tuple[SceneClassifier, Path]:
    """A model whose positions see far beyond themselves."""
    return SceneClassifier.load(model_file, engine="torch"), model_file


def _plan(model: tuple[SceneClassifier, Path], raster: Path, most: int = 80, **options: Any) -> IndexPlan:
    with open_raster(raster) as dataset, pytest.MonkeyPatch.context() as patch:
        patch.setattr(layout, "MOST_WINDOWS", most)
        planned = plan_work(*model, dataset, raster, MapOptions(**options))
    assert isinstance(planned.plan, IndexPlan)
    return planned.plan


def _cells(model: tuple[SceneClassifier, Path], plan: IndexPlan) -> Cells:
    """The cells of all blocks together."""
    parts = [describe_cells(model[0].model_, model[0].engine_, plan, chunk) for chunk in range(plan.chunks)]
    shape = plan.grid.rows, plan.grid.columns
    whole = Cells(*(np.zeros((*shape, *own.shape[2:]), own.dtype) for own in parts[0]))
    for chunk, part in enumerate(parts):
        for own, some in zip(whole, part, strict=True):
            own[plan.cells(chunk)] = some
    return whole


def _starts(plan: IndexPlan) -> list[list[float]]:
    """Where tiles begin, for rows and columns: around the middles of cells, moved into the raster."""
    found = []
    for side, cell, tile in zip(plan.size[::-1], plan.cell[::-1], plan.tile[::-1], strict=True):
        found.append([min(max((n + 0.5) * cell - tile / 2, 0), side - tile) for n in range(-(-side // cell))])
    return found


def _alike(one: Any, other: Any) -> Any:
    """Cosines of vectors."""
    a, b = (own.reshape(-1, own.shape[-1]).astype(np.float64) for own in (one, other))
    return (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)


@pytest.fixture
def scene(picture: Any) -> Any:
    """With a whole number of positions, and neither of tiles nor of cells."""
    return np.concatenate([picture, picture[:, :2]], 1)


def test_blocks_have_every_cell_once_and_tiles_stay_in_the_raster() -> None:
    plan = plan_of(9, 12, size=(118, 83))
    seen = np.zeros((9, 12), int)
    for chunk in range(plan.chunks):
        columns, rows = plan.axes(chunk)
        assert plan.cells(chunk) == (rows.cells, columns.cells)
        seen[plan.cells(chunk)] += 1
        for axis, size in ((columns, 118), (rows, 83)):
            low, high = axis.tile_edges
            begin, end = axis.cell_edges
            assert (low >= 0).all() and (high <= size).all() and np.allclose(high - low, 20)
            assert (low <= begin).all() and (high >= end).all() and (end > begin).all() and (end <= size).all()
            assert all(axis.one(n).middles[0] == middle for n, middle in enumerate(axis.middles))
    assert (seen == 1).all()


@pytest.mark.parametrize("most", [80, 5, 1])
def test_vectors_are_what_the_model_says_of_the_tiles(patches: Any, write_raster: Any, scene: Any, most: int) -> None:
    plan = _plan(patches, write_raster(scene), most)
    assert plan.dense and plan.block <= most
    found = _cells(patches, plan)
    model = patches[0].model_
    for row, top in enumerate(_starts(plan)[0]):
        cut = [scene[:, int(top) : int(top) + 64, int(left) : int(left) + 64] for left in _starts(plan)[1]]
        images = torch.from_numpy(np.stack(cut)).float() / 255
        wanted = model.descriptor(images).numpy()
        assert np.allclose(found.vectors[row], wanted, rtol=2e-3, atol=2e-3)
        votes = model.canonical(images).votes.sum(1)
        own = votes.gather(1, torch.from_numpy(found.rotations[row].astype(np.int64))[:, None])[:, 0]
        assert (own >= votes.amax(1) - 1).all()  # matrices that are all but equal may vote for either
    assert (found.valid == 255).all()


@pytest.mark.parametrize("exact", [False, True], ids=["dense", "exact"])
def test_holes_have_no_vectors(patches: Any, deep: Any, write_raster: Any, scene: Any, exact: bool) -> None:
    values = np.maximum(scene, 1)
    values[:, 20:90, 44:120] = 0
    values[:, :, 197:] = 0
    model = deep if exact else patches
    plan = _plan(model, write_raster(values, nodata=0), 5, exact=exact)
    found = _cells(model, plan)
    known = values[0] > 0
    for (row, top), (column, left) in itertools.product(*map(enumerate, _starts(plan))):
        own = known[16 * row : 16 * row + 16, 16 * column : 16 * column + 16].mean()
        tile = known[int(top) : int(top) + 64, int(left) : int(left) + 64].mean()
        if min(own, tile) >= 0.5:
            assert found.valid[row, column] == round(255 * own)
            assert found.vectors[row, column].any()
        else:
            assert found.valid[row, column] == 0 and not found.vectors[row, column].any()
    assert 0 < (found.valid == 0).sum() < 60


def test_a_little_data_is_enough_if_that_is_asked_for(patches: Any, write_raster: Any, scene: Any) -> None:
    values = np.zeros_like(scene)
    values[:, 70, 70] = 200
    raster = write_raster(values, nodata=0)
    assert not _cells(patches, _plan(patches, raster)).valid.any()
    assert np.argwhere(_cells(patches, _plan(patches, raster, min_valid=0.0)).valid).tolist() == [[4, 4]]


@pytest.mark.parametrize("factor", [1.0, 0.6, 1.7], ids=["same", "finer", "coarser"])
def test_other_blocks_say_the_same(deep: Any, scenes: Path, write_raster: Any, picture: Any, factor: float) -> None:
    """Where seams lie does not show: by a network whose positions see far, on pixels of three sizes."""
    classifier = deep[0]
    place = Affine(0.5 * factor, 0, 500_000, 0, -0.5 * factor, 5_600_000)
    raster = write_raster(np.tile(picture, (1, 3, 2)), transform=place)
    one, other = (_plan(deep, raster, most) for most in (80, 7))
    assert one.chunks == 1 < other.chunks
    a, b = _cells(deep, one), _cells(deep, other)
    assert _alike(a.vectors, b.vectors).min() > 0.99
    head = classifier.model_.head
    labels = [head(torch.from_numpy(own.vectors).float()).argmax(-1).numpy() for own in (a, b)]
    assert (labels[0] == labels[1]).mean() >= 0.99
    assert (a.rotations == b.rotations).mean() > 0.95 and (a.valid == b.valid).all()


@pytest.mark.parametrize("resolution", [0.25, 0.4, 0.8])
def test_a_place_is_resampled_alike_in_every_block(
    patches: Any, write_raster: Any, scene: Any, resolution: float
) -> None:
    place = Affine(resolution, 0, 500_000, 0, -resolution, 5_600_000)
    raster = write_raster(np.tile(scene, (1, 2, 2)), transform=place)
    one, other = (_plan(patches, raster, most) for most in (80, 3))
    assert one.chunks < other.chunks
    assert _alike(_cells(patches, one).vectors, _cells(patches, other).vectors).min() > 0.9999


@pytest.mark.parametrize("resolution", [0.5, 0.4, 0.8])
@pytest.mark.parametrize("most", [80, 5])
def test_a_part_of_a_raster_says_what_the_whole_says(
    patches: Any, write_raster: Any, scene: Any, resolution: float, most: int
) -> None:
    """Cut out by whole cells, three of which are a tile: its corner lies otherwise from positions of features."""
    values = np.tile(scene, (1, 3, 3))
    place = Affine(resolution, 0, 500_000.1, 0, -resolution, 5_600_000.2)
    whole = _plan(patches, write_raster(values, transform=place), cells=3)
    a = _cells(patches, whole)
    for column, row in ((5, 2), (2, 1)):
        left, top = column * whole.cell[0], row * whole.cell[1]
        cut = values[:, top : top + 330, left : left + 360]
        part = _plan(
            patches, write_raster(cut, "part.tif", transform=place @ Affine.translation(left, top)), most, cells=3
        )
        assert part.dense and (part.offset[0] - whole.offset[0], part.offset[1] - whole.offset[1]) == (left, top)
        b = _cells(patches, part)
        inner = [slice(4, n - 4) for n in b.valid.shape]
        moved = tuple(slice(own.start + n, own.stop + n) for own, n in zip(inner, (row, column), strict=True))
        assert b.valid[tuple(inner)].size >= 6
        assert _alike(a.vectors[moved], b.vectors[tuple(inner)]).min() > 0.9999
        if resolution == 0.5 and most == 80:  # without its place it has other positions
            plain = _cells(patches, part.model_copy(update={"offset": (0, 0)}))
            assert _alike(a.vectors[moved], plain.vectors[tuple(inner)]).min() < 0.9999


def test_what_is_missing_looks_alike_in_every_block(patches: Any, deep: Any, write_raster: Any, picture: Any) -> None:
    """A scene that is darker in the west, a third of it without data, in stripes."""
    shade = np.linspace(0.2, 1, 400)
    values = (np.maximum(np.tile(picture, (1, 2, 2)), 5) * shade).astype(np.uint8)
    for top in range(40, 300, 70):
        values[:, top : top + 22] = 0
    raster = write_raster(values, nodata=0)
    for model, least in ((patches, 0.9999), (deep, 0.99)):
        one, other = (_plan(model, raster, most) for most in (80, 5))
        assert one.chunks == 1 < other.chunks
        a, b = _cells(model, one), _cells(model, other)
        known = a.valid > 0
        assert (a.valid == b.valid).all() and 0.5 < known.mean() < 0.9
        assert _alike(a.vectors[known], b.vectors[known]).min() > least
        head = model[0].model_.head
        labels = [head(torch.from_numpy(own.vectors[known]).float()).argmax(-1).numpy() for own in (a, b)]
        assert (labels[0] == labels[1]).mean() >= 0.99


@pytest.mark.parametrize("strip", [1024, 40, 1])
@pytest.mark.parametrize("shape", [64, 32, 96])
def test_squares_are_the_raster_and_its_border_beyond(
    patches: Any, write_raster: Any, scene: Any, strip: int, shape: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "STRIP", strip)
    raster = write_raster(scene)
    plan = _plan(patches, raster).model_copy(update={"shape": (shape, shape)})
    scale = np.array([shape / 64] * 2)
    step = 64 // np.gcd(64, shape)
    low, side = np.array([-2 * step, 60]), 3 * shape
    with rasterio.open(raster) as dataset:
        pixels, valid = blocks._square(dataset, plan, low, scale, side, np.array([step, step]))
        height, width = (round(size * shape / 64) for size in dataset.shape)
        method = Resampling.average if shape < 64 else Resampling.bilinear
        whole = dataset.read(out_shape=(3, height, width), resampling=method) / np.float32(255)
    y, x = (np.arange(side) + round(begin * shape / 64) for begin in low[::-1])
    wanted = whole[:, y.clip(0, height - 1)[:, None], x.clip(0, width - 1)]
    inside = ((y >= 0) & (y < height))[:, None] & ((x >= 0) & (x < width))
    assert (valid == inside).all()
    assert np.abs(pixels - wanted).max() < (1.5 / 255 if shape > 32 or strip > 1 else 0.02)


def test_bands_values_and_pixels_that_are_not_square(patches: Any, write_raster: Any, scene: Any) -> None:
    plain = _cells(patches, _plan(patches, write_raster(scene)))
    many = np.zeros((12, *scene.shape[1:]), np.uint16)
    many[[3, 2, 1]] = 100 + 10 * scene.astype(np.uint16)
    raster = write_raster(many, "many.tif")
    with pytest.raises(RasterError, match=r"has 12 bands and does not say .* `bands=4,3,2`"):
        _plan(patches, raster)
    with pytest.raises(RasterError, match="has uint16 pixels, but the model was trained on uint8 ones"):
        _plan(patches, raster, bands=(4, 3, 2))
    found = _cells(patches, _plan(patches, raster, bands=(4, 3, 2), scale="100,2650"))
    assert np.allclose(found.vectors, plain.vectors, atol=2e-3)
    real = scene.astype(np.float32) / 255
    real[:, 30:60, 100:120] = np.nan
    found = _cells(patches, _plan(patches, write_raster(real, "real.tif"), scale="0,1"))
    assert np.isfinite(found.vectors).all() and found.valid[2, 6] == 0
    far = np.abs(np.array(_starts(_plan(patches, raster, bands=(4, 3, 2), scale="100,2650"))[1]) - 110) > 90
    assert np.allclose(found.vectors[:, far], plain.vectors[:, far], atol=2e-3)
    wide = write_raster(scene.repeat(2, 2), "wide.tif", transform=Affine(0.25, 0, 500_000, 0, -0.5, 5_600_000))
    plan = _plan(patches, wide)
    assert plan.cell == (32, 16)
    assert _alike(_cells(patches, plan).vectors, plain.vectors).min() > 0.9999


def test_a_raster_smaller_than_a_tile_is_one(deep: Any, write_raster: Any, picture: Any) -> None:
    plan = _plan(deep, write_raster(picture[:, :40, :50]))
    assert not plan.dense and plan.tile == (50, 40)
    found = _cells(deep, plan)
    wanted = deep[0].model_.descriptor(torch.from_numpy(picture[None, :, :40, :50]).float() / 255).detach().numpy()
    assert found.vectors.shape[:2] == (3, 4)
    assert np.allclose(found.vectors, wanted, atol=2e-3)


@pytest.mark.parametrize("tile", [None, "600m", "1500px", "5000px", "20px"])
def test_blocks_of_huge_rasters_are_bounded(
    deep: Any, tmp_path: Path, tile: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A raster of 50,000 x 50,000 pixels that are nearly all missing: what is read and kept at the same time."""
    path = tmp_path / "huge.tif"
    size = {"width": 50_000, "height": 50_000, "count": 3, "dtype": "uint8", "nodata": 0, "crs": "EPSG:25832"}
    given = {"tiled": True, "sparse_ok": True, "bigtiff": "yes", "transform": Affine(0.5, 0, 5e5, 0, -0.5, 5.6e6)}
    with rasterio.open(path, "w", driver="GTiff", **size, **given):
        pass
    assert path.stat().st_size < 10_000_000
    plan = _plan(deep, path, tile=tile)
    assert plan.dense == (tile != "5000px")  # one of these with its surroundings would be too much
    if not plan.dense:
        assert plan.block <= 8  # few are lost with a run that is killed
        return
    model = deep[0].model_
    axes = plan.axes(plan.chunks // 2)
    own = blocks._layout(axes, [axis.centre for axis in axes], max(plan.shape), model)
    assert own.side**2 <= layout.MOST_PIXELS
    positions = own.view(0) ** 2 / (model.config.size / 14) ** 2
    assert 4 * model.reduction.channels * model.config.rotations * positions <= layout.MOST_BYTES
    read: list[int] = []

    def reading(dataset: Any, look: Any, x: int, y: int, width: int, height: int, shape: Any) -> Any:
        read.append(max(height, shape[0]))
        return np.zeros((*shape, 3), np.float32), np.zeros(shape, bool)

    monkeypatch.setattr(blocks, "read_window", reading)
    assert not describe_cells(model, deep[0].engine_, plan, plan.chunks // 2).valid.any()
    assert max(read) <= 1.01 * max(blocks.STRIP, *plan.tile)


def test_blocks_of_long_vectors_are_smaller(
    deep: Any, write_raster: Any, picture: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that what is written can be opened again."""
    monkeypatch.setattr(indexing, "MAX_BLOCK", 2 * 45 * 7 * 7)
    assert _plan(deep, write_raster(picture)).block == 7


def test_pixels_of_a_block_are_those_that_tiles_are_made_of(patches: Any, write_raster: Any, scene: Any) -> None:
    """Both ways read a window alike, so that they differ in surroundings alone."""
    raster = write_raster(scene)
    plan = _plan(patches, raster)
    with rasterio.open(raster) as dataset:
        square, _ = blocks._square(dataset, plan, np.array([32, 16]), np.ones(2), 64, np.ones(2, int))
        tile, _ = read_window(dataset, plan.look, 32, 16, 64, 64, (64, 64))
    assert np.abs(square - np.moveaxis(tile, -1, 0)).max() < 1e-3
