"""Indexes that are resumed, shared, mended and used again, against those that were made in one go."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from rasterio.transform import Affine, from_origin

from mgcap.classifier import SceneClassifier
from mgcap.errors import RasterError
from mgcap.geo import indexing
from mgcap.geo.blocks import Cells
from mgcap.geo.cluster import cluster_workers
from mgcap.geo.heads import classify_index, coarser
from mgcap.geo.index import Index, create_index, open_index
from mgcap.geo.indexing import find_index, index_raster
from mgcap.geo.mapping import map_raster
from mgcap.geo.plan import Plan
from mgcap.geo.work import Workers, compute_here
from mgcap.inference import layout
from mgcap.inference.engines.torch import TorchEngine
from mgcap.persistence.locks import claimed
from tests.geo.indexes import Lines, about_of, cells_of, patches_file, plan_of
from tests.inference.plain import patches_backbone


@pytest.fixture(scope="module")
def classifier(model_file: Path) -> SceneClassifier:
    return SceneClassifier.load(model_file, engine="torch")


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rasters of 10 x 13 cells have 3 x 4 blocks."""
    monkeypatch.setattr(layout, "MOST_WINDOWS", 4)


@pytest.fixture
def make(classifier: SceneClassifier, model_file: Path, tmp_path: Path) -> Any:
    def make_index(raster: Path, name: str = "scene.zarr", **options: Any) -> Index:
        return index_raster(classifier, model_file, raster, tmp_path / name, **options)

    return make_index


def _bytes(index: Index | Path) -> dict[str, bytes]:
    root = Path(index.name if isinstance(index, Index) else index)
    files = (path for path in root.rglob("*") if path.is_file())
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in files}


def _counting(workers: Workers, computed: list[int], stop_after: int = 99) -> Workers:
    def work(plan: Plan, numbers: Iterable[int]) -> Iterator[tuple[int, Any]]:
        for number, cells in workers(plan, numbers):
            if len(computed) == stop_after:
                raise KeyboardInterrupt
            computed.append(number)
            yield number, cells

    return work


def test_a_run_that_was_stopped_is_resumed(
    make: Any, write_raster: Any, picture: Any, classifier: SceneClassifier
) -> None:
    raster, computed, said = write_raster(picture), [], Lines()
    whole = make(raster, "whole.zarr")
    assert whole.plan.chunks == 12
    with pytest.raises(KeyboardInterrupt):
        make(raster, workers=_counting(compute_here(classifier), computed, 5))
    done = make(raster, workers=_counting(compute_here(classifier), computed), progress=said)
    assert sorted(computed) == list(range(12))
    assert _bytes(done) == _bytes(whole)
    assert said.lines[0] == "resuming scene.zarr: 5 of 12 blocks are done"
    assert said.lines[1].startswith("scene.zarr: 62 cells, ") and "km² a minute" in said.lines[1]


def test_a_raster_smaller_than_a_tile_is_said_to_be(make: Any, write_raster: Any, picture: Any) -> None:
    small, large = Lines(), Lines()
    make(write_raster(picture[:, :40, :100], "small.tif"), "small.zarr", progress=small)
    make(write_raster(picture), progress=large)
    assert small.lines[0].startswith(
        "small.tif is smaller than a tile of 64 x 64 pixels: the model sees less than it was"
    )
    assert not [line for line in large.lines if "smaller" in line]


def test_the_rate_is_said_again_and_again(
    make: Any, write_raster: Any, picture: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    said, now = Lines(), [0.0]

    def clock() -> float:
        now[0] += 10
        return now[0]

    monkeypatch.setattr(indexing, "time", SimpleNamespace(monotonic=clock, sleep=time.sleep))
    make(write_raster(picture), progress=said)
    assert 3 <= len(said.lines) <= 5
    cells = [int(line.split(": ")[1].split(" ")[0]) for line in said.lines]
    assert cells == sorted(cells) and 0 < cells[0] < cells[-1] == 130
    assert said.lines[-1].startswith("scene.zarr: 130 cells, 0.0075")


def test_the_rate_is_that_of_cells_with_data(make: Any, write_raster: Any, picture: Any) -> None:
    """Half a metre a pixel, 16 pixels a cell; the left half has no data."""
    values, said = np.maximum(picture, 1), Lines()
    values[:, :, :96] = 0
    known = make(write_raster(values, nodata=0), progress=said).group["valid"][:] > 0
    area = sum(known[r, c] * min(16, picture.shape[1] - 16 * r) * min(16, picture.shape[2] - 16 * c) / 4
               for r, c in np.ndindex(known.shape))  # fmt: skip
    assert 0 < known.sum() < known.size / 1.5
    assert said.lines[-1].startswith(f"scene.zarr: {known.sum()} cells, {area / 1e6:.3g} km² in ")


KILLED = """
import os, signal, sys
import torch
from mgcap.classifier import SceneClassifier
from mgcap.geo.indexing import index_raster
from mgcap.geo.work import compute_here
from mgcap.inference import layout

torch.set_num_threads(1)
layout.MOST_WINDOWS = 4
model, raster, out = sys.argv[1:]
classifier = SceneClassifier.load(model, engine="torch")

def work(plan, numbers):
    for count, answer in enumerate(compute_here(classifier)(plan, numbers)):
        if count == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        yield answer

index_raster(classifier, model, raster, __import__("pathlib").Path(out), workers=work)
"""


def test_a_process_that_was_killed_loses_no_block_but_its_own(
    make: Any, write_raster: Any, picture: Any, model_file: Path, tmp_path: Path, classifier: SceneClassifier
) -> None:
    raster, computed = write_raster(picture), []
    given = [sys.executable, "-c", KILLED, *map(str, (model_file, raster, tmp_path / "scene.zarr"))]
    assert subprocess.run(given, capture_output=True).returncode == -signal.SIGKILL
    assert open_index(tmp_path / "scene.zarr").missing() == list(range(3, 12))
    done = make(raster, workers=_counting(compute_here(classifier), computed))
    assert computed == list(range(3, 12))
    assert _bytes(done) == _bytes(make(raster, "whole.zarr"))


def test_a_damaged_block_is_computed_again_and_no_other(
    make: Any, write_raster: Any, picture: Any, classifier: SceneClassifier
) -> None:
    raster, computed = write_raster(picture), []
    index = make(raster)
    whole = _bytes(index)
    one = Path(index.name) / "vectors" / "c" / "1" / "2" / "0"
    one.write_bytes(one.read_bytes()[:40] + b"x" + one.read_bytes()[41:])
    assert _bytes(index) != whole
    make(raster, workers=_counting(compute_here(classifier), computed))
    assert computed == [1 * 4 + 2]
    assert _bytes(index) == whole


def test_a_second_run_changes_nothing(make: Any, write_raster: Any, picture: Any) -> None:
    raster = write_raster(picture)
    index = make(raster)
    before = {path: path.stat().st_mtime_ns for path in Path(index.name).rglob("*")}
    said = Lines()

    def none(plan: Plan, numbers: Iterable[int]) -> Any:
        raise AssertionError

    make(raster, workers=none, progress=said)
    assert {path: path.stat().st_mtime_ns for path in Path(index.name).rglob("*")} == before
    assert not said.lines


def _drawing(computed: list[int], wait: float) -> Workers:
    """Workers that need no model."""

    def work(plan: Any, numbers: Iterable[int]) -> Iterator[tuple[int, Cells]]:
        for number in numbers:
            time.sleep(wait)
            computed.append(number)
            yield number, cells_of(plan, number)

    return work


def _planned(rows: int = 30, columns: int = 30) -> indexing.Planned:
    plan = plan_of(rows, columns)
    return indexing.Planned(plan, about_of(plan), 5, None)


def test_two_writers_share_the_work(tmp_path: Path) -> None:
    planned, computed = _planned(), ([], [])
    ready = threading.Barrier(2)

    def write(own: list[int]) -> None:
        ready.wait()
        index = find_index(tmp_path / "scene.zarr", planned, given=True)
        indexing.fill_index(index, planned, _drawing(own, 0.01))
        assert not index.missing()  # nobody leaves before it is whole

    threads = [threading.Thread(target=write, args=(own,)) for own in computed]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(computed[0] + computed[1]) == list(range(25))
    assert min(map(len, computed)) > 5
    alone = create_index(tmp_path / "alone.zarr", planned.about, 5)
    indexing.fill_index(alone, planned, _drawing([], 0))
    assert _bytes(tmp_path / "scene.zarr") == _bytes(alone)


def test_a_writer_with_other_settings_that_was_faster_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned, path = _planned(9, 12), tmp_path / "scene.zarr"
    other = about_of(planned.plan.model_copy(update={"bands": (3, 2, 1)}))

    def slow(*given: Any) -> Index:
        create_index(path, other, 5)
        return create_index(*given)

    monkeypatch.setattr(indexing, "create_index", slow)
    with pytest.raises(RasterError, match=r"scene\.zarr is an index that differs in `bands`; give another name"):
        find_index(path, planned, given=True)


def test_an_index_of_another_engine_is_used_and_that_is_said(tmp_path: Path) -> None:
    planned, path, said = _planned(9, 12), tmp_path / "scene.zarr", Lines()
    indexing.fill_index(find_index(path, planned, given=True, progress=said), planned, _drawing([], 0))
    find_index(path, planned, given=True, progress=said)
    assert not said.lines
    other = planned._replace(about=about_of(planned.plan.model_copy(update={"engine": "openvino"})))
    assert not find_index(path, other, given=True, progress=said).missing()
    assert said.lines == [f"{path} was computed by the engine torch, not openvino"]


def test_no_index_is_made_at_an_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for address, words in (
        (Path("s3://bucket/scene.zarr"), "s3:/bucket/scene.zarr is no place on this machine"),
        ("memory://bucket/scene.zarr", "is not an index"),
    ):
        with pytest.raises(RasterError, match=words):
            find_index(address, _planned(9, 12), given=True)
    assert not list(tmp_path.iterdir())


def test_a_block_of_a_process_that_died_is_taken_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexing, "WAIT", 0.01)
    planned, computed, said = _planned(9, 12), [], Lines()
    index = create_index(tmp_path / "scene.zarr", planned.about, 5)
    locks = Path(index.name) / ".locks"
    locks.mkdir()
    with claimed(locks / "2") as held:
        assert held

        def fill() -> None:
            indexing.fill_index(index, planned, _drawing(computed, 0), said)

        thread = threading.Thread(target=fill)
        thread.start()
        while not said.lines:
            time.sleep(0.01)
        assert computed == [0, 1, 3] and thread.is_alive()
    thread.join()
    assert computed == [0, 1, 3, 2]
    assert said.lines == ["waiting for 1 of 4 blocks of scene.zarr, at which another process is"]
    assert not index.missing()


def test_a_file_system_without_locks_keeps_nobody_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import fcntl

    def refuse(handle: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    planned, computed = _planned(9, 12), []
    index = create_index(tmp_path / "scene.zarr", planned.about, 5)
    indexing.fill_index(index, planned, _drawing(computed, 0))
    assert computed == [0, 1, 2, 3] and not index.missing()


def test_a_full_disk_costs_no_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import zarr.storage._local as local

    planned, computed = _planned(9, 12), []
    index = create_index(tmp_path / "scene.zarr", planned.about, 5)
    put, written = local._put, []

    def full(path: Path, *given: Any, **more: Any) -> Any:
        if len(written) == 4:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        written.append(path)
        return put(path, *given, **more)

    monkeypatch.setattr(local, "_put", full)
    with pytest.raises(OSError, match="No space left"):
        indexing.fill_index(index, planned, _drawing(computed, 0))
    monkeypatch.undo()
    assert index.missing() == [1, 2, 3]
    indexing.fill_index(index, planned, _drawing(computed, 0))
    assert computed == [0, 1, 1, 2, 3] and not index.missing()


def test_two_workers_one_of_them_killed_give_the_same_bytes(make: Any, write_raster: Any, picture: Any) -> None:
    """Work is handed to them bit by bit: who claims all blocks leaves nothing to others, and opens a file for each."""
    from distributed import get_client

    raster, killed, taken, ahead = write_raster(picture), [], [], []
    alone = make(raster, "alone.zarr")
    with cluster_workers("local:2") as workers:

        def killing(plan: Any, numbers: Any) -> Any:
            def counted() -> Iterator[int]:
                for number in numbers:
                    taken.append(number)
                    yield number

            for done, answer in enumerate(workers(plan, counted())):
                ahead.append(len(taken) - done)
                if done == 2:
                    pids = get_client().run(os.getpid)
                    killed.append(next(iter(pids.values())))
                    os.kill(killed[0], signal.SIGKILL)
                    time.sleep(0.2)
                yield answer

        shared = make(raster, "shared.zarr", workers=killing)
    assert killed and _bytes(shared) == _bytes(alone)
    assert sorted(taken) == list(range(12)) and max(ahead) <= 4


def test_an_index_of_something_else_is_refused_with_words(make: Any, write_raster: Any, picture: Any) -> None:
    raster = write_raster(picture)
    make(raster)
    kept = "; give another name, or remove it"
    with pytest.raises(RasterError, match=rf"scene\.zarr is an index that differs in `bands`{kept}"):
        make(raster, bands=(3, 2, 1))
    with pytest.raises(RasterError, match=r"differs in the resolution of tiles, `tile`"):
        make(raster, tile="32px")
    with pytest.raises(RasterError, match=r"differs in `cells`"):
        make(raster, cells=3)
    with pytest.raises(RasterError, match=r"differs in `exact`"):
        make(raster, exact=True)
    os.utime(raster, ns=(1, 1))
    with pytest.raises(RasterError, match=r"differs in the date or length of the raster's file"):
        make(raster)
    with pytest.raises(RasterError, match=r"differs in the size of the raster"):
        make(write_raster(picture[:, :-1], "other.tif"))
    for name, other in (("folder.zarr", Path.mkdir), ("text.zarr", lambda path: path.write_text("x"))):
        other(raster.with_name(name))
        with pytest.raises(RasterError, match="is not an index"):
            make(raster, name)
    assert raster.with_name("text.zarr").read_text() == "x"


def test_an_index_is_no_reason_to_trust_a_raster(
    make: Any, write_raster: Any, picture: Any, classifier: SceneClassifier, model_file: Path, tmp_path: Path
) -> None:
    raster, plans = write_raster(picture), []
    index = make(raster, allow_vrt=True)
    assert index.plan.allow_vrt
    shutil.rmtree(Path(index.name) / "valid" / "c" / "0")

    def work(plan: Plan, numbers: Iterable[int]) -> Any:
        plans.append(plan)
        return compute_here(classifier)(plan, numbers)

    done = map_raster(classifier, model_file, raster, tmp_path / "map.gpkg", index=index.name, unknown=0, workers=work)
    assert not done.plan.allow_vrt and not any(plan.allow_vrt for plan in plans) and plans
    assert {(plan.raster, plan.model) for plan in plans} == {(str(raster), str(model_file))}


VRT = """<VRTDataset rasterXSize="200" rasterYSize="150"><SRS>EPSG:25832</SRS>
<GeoTransform>500000, 0.5, 0, 5600000, 0, -0.5</GeoTransform>{}</VRTDataset>"""
BAND = """<VRTRasterBand dataType="Byte" band="{0}"><ColorInterp>{1}</ColorInterp><SimpleSource>
<SourceFilename relativeToVRT="1">{2}</SourceFilename><SourceBand>{0}</SourceBand></SimpleSource></VRTRasterBand>"""


def _vrt(path: Path, source: str) -> Path:
    path.write_text(VRT.format("".join(BAND.format(n, c, source) for n, c in enumerate(("Red", "Green", "Blue"), 1))))
    return path


@pytest.mark.parametrize("nested", [False, True])
def test_a_source_that_changed_makes_another_raster_of_a_vrt(
    make: Any, write_raster: Any, picture: Any, tmp_path: Path, nested: bool
) -> None:
    write_raster(picture, "source.tif")
    raster = _vrt(tmp_path / "inner.vrt", "source.tif")
    raster = _vrt(tmp_path / "outer.vrt", "inner.vrt") if nested else raster
    make(raster, allow_vrt=True)
    (tmp_path / "source.tif.aux.xml").write_text("<PAMDataset/>")  # as QGIS does
    assert not make(raster, allow_vrt=True).missing()
    own = write_raster(picture[:, ::-1].copy(), "source.tif")
    os.utime(own, ns=(1, 1))  # older, and as long
    with pytest.raises(RasterError, match=r"differs in the files that the raster is read from; give another name"):
        make(raster, allow_vrt=True)


def test_archives_are_told_apart_by_name_and_place(make: Any, write_raster: Any, picture: Any, tmp_path: Path) -> None:
    for name, east in (("a", 500_000), ("b", 500_000), ("c", 510_000)):
        raster = write_raster(picture, transform=from_origin(east, 5_600_000, 0.5, 0.5))
        with zipfile.ZipFile(tmp_path / f"{name}.zip", "w") as archive:
            archive.write(raster, "scene.tif")
    names = [f"/vsizip/{tmp_path}/{name}.zip/scene.tif" for name in "abc"]
    make(names[0], allow_vrt=True)
    make(names[0], allow_vrt=True)
    for name, words in ((names[1], "the raster;"), (names[2], "the raster, the place of the raster;")):
        with pytest.raises(RasterError, match=f"is an index that differs in {words}"):
            make(name, allow_vrt=True)


def test_a_raster_that_lies_elsewhere_is_another(make: Any, write_raster: Any, picture: Any) -> None:
    raster = write_raster(picture)
    state = raster.stat()
    make(raster)
    moved = write_raster(picture, transform=from_origin(500_001, 5_600_000, 0.5, 0.5))
    os.utime(moved, ns=(state.st_atime_ns, state.st_mtime_ns))
    with pytest.raises(RasterError, match="differs in the place of the raster;"):
        make(moved)


def test_an_index_that_nobody_named_gives_way_to_another(tmp_path: Path) -> None:
    planned, path, said = _planned(9, 12), tmp_path / "scene.zarr", Lines()
    indexing.fill_index(find_index(path, planned, given=False), planned, _drawing([], 0))
    kept, plan = _bytes(path), planned.plan.model_copy(update={"bands": (3, 2, 1)})
    others = [find_index(path, planned._replace(about=about_of(plan)), given=False, progress=said) for _ in range(2)]
    (own,) = tmp_path.glob("scene.*.zarr")
    assert {other.name for other in others} == {str(own)}
    assert said.lines == 2 * [f"{path} is an index that differs in `bands`; using {own.name} instead"]
    assert _bytes(path) == kept and find_index(path, planned, given=False).name == str(path)
    stranger = tmp_path / "other.zarr"
    stranger.mkdir()
    assert find_index(stranger, planned, given=False).name != str(stranger) and not list(stranger.iterdir())


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Views that the network saw, call by call."""
    calls: list[int] = []
    own = TorchEngine.features

    def features(self: TorchEngine, views: Any, granularity: int) -> Any:
        if views.any():  # zeros only ask for the shape
            calls.append(len(views))
        return own(self, views, granularity)

    monkeypatch.setattr(TorchEngine, "features", features)
    return calls


def test_maps_by_other_models_need_no_network(
    write_raster: Any, picture: Any, scenes: Path, tmp_path: Path, counted: list[int]
) -> None:
    raster = write_raster(picture)
    with patches_backbone():
        models = [patches_file(tmp_path / f"{n}.mgcap", scenes, n) for n in (4, 3)]
        loaded = [SceneClassifier.load(model, engine="torch") for model in models]
        counted.clear()
        first = map_raster(loaded[0], models[0], raster, tmp_path / "first.gpkg")
        assert counted
        counted.clear()
        said = Lines()
        second = map_raster(loaded[1], models[1], raster, tmp_path / "second.gpkg", cells=2, unknown=0, progress=said)
        assert said.lines == [f"the index of this raster is {tmp_path / 'scene.zarr'}"]
        assert not counted
        models[1].rename(tmp_path / "moved.mgcap")
        shutil.rmtree(tmp_path / "scene.zarr")
        alone = map_raster(loaded[1], tmp_path / "moved.mgcap", raster, tmp_path / "alone.gpkg", cells=4, unknown=0)
        assert counted
    assert len(first.names) - 1 == 4 and len(second.classes) == 3  # one is unknown
    assert second.found.classes.shape == (5, 7)
    known = alone.found.probabilities[:10, :12].reshape(5, 2, 6, 2, 3).mean((1, 3))
    assert np.allclose(second.found.probabilities[:, :6], known, atol=1e-5)


def test_an_exact_index_is_what_the_model_says_of_each_tile_and_makes_maps(
    make: Any, write_raster: Any, picture: Any, classifier: SceneClassifier, model_file: Path, tmp_path: Path
) -> None:
    raster = write_raster(picture)
    index = make(raster, exact=True, cells=2)
    starts = [[min(max(32 * n - 16, 0), side - 64) for n in range(-(-side // 32))] for side in (150, 200)]
    cut = [picture[:, y : y + 64, x : x + 64] for y in starts[0] for x in starts[1]]
    wanted = classifier.model_.descriptor(torch.from_numpy(np.stack(cut)).float() / 255)
    found = np.concatenate([cells.vectors.reshape(-1, 45) for _, cells in index.blocks()])
    order = [r * 7 + c for (rows, columns), _ in index.blocks() for r in range(rows.start, rows.stop)
             for c in range(columns.start, columns.stop)]  # fmt: skip
    assert np.allclose(found, wanted[order].numpy(), atol=2e-3)
    done = map_raster(classifier, model_file, raster, tmp_path / "map.gpkg", index=index.name, cells=2, unknown=0)
    assert (done.found.probabilities.argmax(-1).ravel() == classifier.model_.head(wanted).argmax(-1).numpy()).all()


def test_zones_poles_and_rotated_grids_keep_their_place(make: Any, write_raster: Any, picture: Any) -> None:
    places = [
        ("EPSG:32632", from_origin(830_000, 5_600_000, 0.5, 0.5)),
        ("EPSG:32633", from_origin(400_000, 5_600_000, 0.5, 0.5)),
        ("EPSG:3413", from_origin(-50, 37.5, 0.5, 0.5)),  # the pole inside
        ("EPSG:4326", Affine(4e-6, 0, 180 - 4e-4, 0, -4e-6, 3e-4)),  # across the antimeridian
        ("EPSG:25832", Affine(0.3, 0.4, 500_000, 0.4, -0.3, 5_600_000)),
        (None, Affine.identity()),
    ]
    vectors = []
    for number, (crs, transform) in enumerate(places):
        raster = write_raster(picture, f"{number}.tif", crs=crs, transform=transform)
        index = make(raster, f"{number}.zarr", tile="64px")
        a, b, c, d, e, f = index.about.transform
        for row, column in ((0, 0), (3, 5), (10, 13)):
            x, y = transform * (16 * column, 16 * row)
            assert (a * column + b * row + c, d * column + e * row + f) == pytest.approx((x, y), rel=1e-12)
        assert (crs is None) == (index.about.crs == "") and index.plan.grid.columns == 13
        vectors.append(np.concatenate([cells.vectors.ravel() for _, cells in index.blocks()]))
    for number in (1, 4, 5):  # at the others pixels have another size on the ground
        assert (vectors[0] == vectors[number]).all()


def test_an_index_that_is_whole_is_used_where_it_is(
    make: Any, write_raster: Any, picture: Any, classifier: SceneClassifier, model_file: Path, tmp_path: Path
) -> None:
    import fsspec

    raster = write_raster(picture)
    index = make(raster)
    here = classify_index(classifier.model_, index, coarser(index, 4))
    memory, there = fsspec.filesystem("memory"), f"{tmp_path}/scene.zarr"
    memory.put(index.name, there, recursive=True)
    far = map_raster(classifier, model_file, raster, tmp_path / "far.gpkg", index=f"memory://{there}")
    assert (far.found.probabilities == here.probabilities).all()
    memory.rm(f"{there}/valid/c/0/0")
    with pytest.raises(RasterError, match=r"memory://.* is not whole; finish it where it was made, with mgcap index"):
        map_raster(classifier, model_file, raster, tmp_path / "far.gpkg", index=f"memory://{there}")
    with pytest.raises(RasterError, match=r"memory://none.zarr is not an index"):
        map_raster(classifier, model_file, raster, tmp_path / "far.gpkg", index="memory://none.zarr")


def test_an_index_that_is_there_tells_that_blocks_go_through_the_network(
    make: Any, write_raster: Any, picture: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To find that out, the network must see two views, which takes a second."""
    raster = write_raster(picture)
    first = make(raster)
    monkeypatch.setattr(indexing, "is_dense", lambda model: pytest.fail("it was looked at again"))
    assert make(raster).plan == first.plan and first.plan.dense
    monkeypatch.setattr(indexing, "is_dense", lambda model: True)
    assert make(raster, "other.zarr", exact=True).plan.dense is False
