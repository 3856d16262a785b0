from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pyogrio
import pytest
import shapely

from mgcap.errors import DataError
from mgcap.geo.index import create_index
from mgcap.labelling.about import add_raster, create_project
from mgcap.labelling.loading import load_labels
from mgcap.labelling.project import Project
from mgcap.labelling.store import Cell
from tests.geo.indexes import about_of, plan_of
from tests.labelling.projects import COLUMNS, ROWS, make_project, write_index, write_scene

ROOT = Path(__file__).parents[2]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return make_project(tmp_path)


def cell(row: int, col: int) -> Cell:
    return Cell("scene.tif", row, col)


def test_labels_are_polygons_that_gdal_reads(project: Project) -> None:
    project.label([cell(3, 4), cell(3, 5)], 1, "anna")
    project.label([cell(0, 23)], 3, "ben")
    path = project.folder / "labels.gpkg"
    info = pyogrio.read_info(path, layer="labels")
    assert info["features"] == 3 and info["geometry_type"] == "Polygon" and info["crs"] == "EPSG:25832"
    # 10 pixels of 0.5 m from 500000, 5600000
    assert tuple(info["total_bounds"]) == (500_020, 5_600_000 - 20, 500_120, 5_600_000)
    table = pyogrio.read_dataframe(path, layer="labels")
    assert table["class"].tolist() == ["wood", "wood", "water"] and table["who"].tolist() == ["anna", "anna", "ben"]
    assert table.geometry[0].equals(shapely.box(500_020, 5_600_000 - 20, 500_025, 5_600_000 - 15))
    assert len(pyogrio.read_dataframe(path, layer="history", read_geometry=False)) == 3
    assert sorted(name for name, _ in pyogrio.list_layers(path)) == ["history", "labels"]


def test_a_clear_ends_a_label_and_the_history_keeps_it(project: Project) -> None:
    project.label([cell(1, 1)], 2, "anna")
    project.label([cell(1, 1)], 1, "anna")
    project.label([cell(1, 1)], None, "anna")
    assert project.labels() == ({}, {})
    with sqlite3.connect(project.folder / "labels.gpkg") as database:
        rows = database.execute("SELECT before, after, kind FROM history ORDER BY id").fetchall()
        assert rows == [(None, 2, "label"), (2, 1, "label"), (1, None, "clear")]
        with pytest.raises(sqlite3.IntegrityError, match="kept"):
            database.execute("DELETE FROM history")


def test_undo_and_redo_are_each_persons_own_and_survive_a_restart(project: Project) -> None:
    project.label([cell(1, 1), cell(1, 2)], 1, "anna")
    project.label([cell(2, 2)], 2, "ben")
    project.label([cell(1, 1)], 3, "anna")
    folder = project.folder
    project.close()
    project = Project(folder)
    assert project.undo("anna") == [cell(1, 1)]
    assert project.labels()[0] == {cell(1, 1): 1, cell(1, 2): 1, cell(2, 2): 2}
    project.close()
    project = Project(folder)
    assert sorted(project.undo("anna")) == [cell(1, 1), cell(1, 2)]
    assert project.undo("anna") == []
    assert project.labels()[0] == {cell(2, 2): 2}
    project.redo("anna")
    project.redo("anna")
    assert project.redo("anna") == []
    assert project.labels()[0] == {cell(1, 1): 3, cell(1, 2): 1, cell(2, 2): 2}
    project.undo("anna")
    project.label([cell(5, 5)], 1, "anna")  # what was undone cannot be done again after something else
    assert project.redo("anna") == []


def test_contradicting_labels_are_a_conflict_until_someone_resolves_it(project: Project) -> None:
    project.label([cell(4, 4)], 1, "anna")
    project.label([cell(4, 4)], 2, "ben")
    agreed, conflicts = project.labels()
    assert agreed == {} and {own.who: own.number for own in conflicts[cell(4, 4)]} == {"anna": 1, "ben": 2}
    project.label([cell(4, 4)], 2, "clara", resolve=True)
    assert project.labels() == ({cell(4, 4): 2}, {})
    assert len(project.store.labels()[cell(4, 4)]) == 3  # nobody's label is lost
    project.undo("clara")
    assert cell(4, 4) in project.labels()[1]
    project.redo("clara")
    assert project.labels() == ({cell(4, 4): 2}, {})
    project.label([cell(4, 4)], 3, "anna")  # who says something else afterwards opens it again
    assert cell(4, 4) in project.labels()[1]
    project.label([cell(4, 4)], None, "anna")
    assert project.labels() == ({cell(4, 4): 2}, {})


def test_classes_are_renamed_merged_and_removed_with_their_labels(project: Project) -> None:
    project.label([cell(1, 1)], 1, "anna")
    project.label([cell(2, 2)], 2, "anna")
    project.change_class(1, name="Wäldchen 森", colour="#123456")
    with pytest.raises(DataError, match="already"):
        project.add_class("WATER")
    with pytest.raises(DataError, match="has 1 labels"):
        project.remove_class(2, "anna")
    assert project.remove_class(2, "anna", into=1) == 1
    assert project.labels()[0] == {cell(1, 1): 1, cell(2, 2): 1}
    table = pyogrio.read_dataframe(project.folder / "labels.gpkg", layer="labels")
    assert table["class"].tolist() == ["Wäldchen 森"] * 2
    assert project.add_class("bare").number == 4  # numbers are not used again
    project.undo("anna")  # of the label of the class that was merged
    assert project.labels()[0] == {cell(1, 1): 1}
    project.redo("anna")
    assert project.labels()[0] == {cell(1, 1): 1, cell(2, 2): 1}  # it comes back as what it was merged into
    project.remove_class(1, "anna", with_labels=True)
    assert project.labels() == ({}, {})
    assert [own.name for own in project.classes] == ["water", "bare"]
    assert len({own.colour for own in project.about.classes}) == 4


def test_impossible_cells_and_classes_are_refused(project: Project) -> None:
    for wrong in (cell(18, 0), cell(0, -1), Cell("other.tif", 0, 0)):
        with pytest.raises(DataError, match="there is no cell"):
            project.label([wrong], 1, "anna")
    with pytest.raises(DataError, match="no class of the number 9"):
        project.label([cell(1, 1)], 9, "anna")
    with pytest.raises(DataError, match="needs a name"):
        project.add_class(" \x07 ")
    assert project.store.version() == 0


def test_a_project_moves_with_its_rasters(project: Project, tmp_path: Path) -> None:
    project.label([cell(1, 1)], 1, "anna")
    project.close()
    there = tmp_path / "there"
    there.mkdir()
    for name in ("scene.tif", "scene.zarr", "scene.labels"):
        (tmp_path / name).rename(there / name)
    assert Project(there / "scene.labels").labels()[0] == {cell(1, 1): 1}


def _other_index(folder: Path, **given: Any) -> Path:
    """An index of the same raster with other cells, or of another place."""
    t = (given.get("cell", (10, 10))[0] * 0.5, 0, 500_000, 0, -5, 5_600_000)
    plan = plan_of(ROWS, COLUMNS, **{own: value for own, value in given.items() if own != "transform"})
    create_index(folder / "other.zarr", about_of(plan, transform=given.get("transform", t)), 8)
    return folder / "other.zarr"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"cell": (12, 10)}, "are for cells of 10 pixels, but other.zarr is for cells of 12 x 10 pixels"),
        ({"size": (250, 180)}, "are for a raster of 240 x 180 pixels, but other.zarr is for a raster of 250 x 180"),
        ({"transform": (5, 0, 500_003, 0, -5, 5_600_000)}, "a raster that lies elsewhere"),
    ],
)
def test_labels_are_never_moved_to_other_cells(
    project: Project, tmp_path: Path, given: dict[str, Any], words: str
) -> None:
    project.label([cell(3, 4)], 1, "anna")
    project.close()
    other = _other_index(tmp_path, **given)
    with pytest.raises(DataError, match=f"{words}.*; make the index with") as said:
        add_raster(project.folder, tmp_path / "scene.tif", other)
    assert "begin another `project`" in str(said.value)
    about = json.loads((project.folder / "project.json").read_text())
    about["rasters"][0]["index"] = "../other.zarr"  # as somebody may who knows the file
    (project.folder / "project.json").write_text(json.dumps(about))
    with pytest.raises(DataError, match=words):
        Project(project.folder)


def test_a_project_of_before_learns_which_cells_its_labels_are_for(project: Project, tmp_path: Path) -> None:
    path = project.folder / "project.json"
    about = json.loads(path.read_text())
    assert about["rasters"][0]["labelled"]["cell"] == [10, 10] and about["rasters"][0]["labelled"]["grid"] == [24, 18]
    del about["rasters"][0]["labelled"]
    path.write_text(json.dumps(about))
    Project(project.folder).close()
    assert json.loads(path.read_text())["rasters"][0]["labelled"]["size"] == [240, 180]
    with pytest.raises(DataError, match="are for cells of 10 pixels"):
        add_raster(project.folder, tmp_path / "scene.tif", _other_index(tmp_path, cell=(20, 20)))


def test_other_folders_and_damaged_files_are_one_sentence(project: Project, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no project"):
        Project(tmp_path / "nowhere")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    with pytest.raises(DataError, match="no project of labels"):
        create_project(tmp_path / "full", "ucmerced")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "scene.tif").write_bytes((tmp_path / "scene.tif").read_bytes())
    with pytest.raises(DataError, match="another raster of the name"):
        add_raster(project.folder, tmp_path / "sub" / "scene.tif", tmp_path / "scene.zarr")
    project.close()
    about = json.loads((project.folder / "project.json").read_text())
    (project.folder / "labels.gpkg").write_bytes(b"SQLite format 3\x00" + bytes(100))
    with pytest.raises(DataError, match="damaged"):
        Project(project.folder)
    for wrong in ("{", json.dumps({**about, "format": 2}), "[" * 100_000):
        (project.folder / "project.json").write_text(wrong)
        with pytest.raises(DataError, match="damaged"):
            Project(project.folder)


_STREAM = """
import sys
from mgcap.labelling.project import Project
from mgcap.labelling.store import Cell
project = Project(sys.argv[1])
for number in range(18 * 24):
    project.label([Cell("scene.tif", number // 24, number % 24)], 1 + number % 3, "anna")
    print(number, flush=True)
"""


@pytest.mark.parametrize("after", [3, 40])
def test_a_killed_process_loses_no_label_that_it_acknowledged(project: Project, after: int) -> None:
    project.close()
    child = subprocess.Popen(
        [sys.executable, "-c", _STREAM, project.folder], stdout=subprocess.PIPE, cwd=ROOT, text=True
    )
    assert child.stdout is not None
    lines = [child.stdout.readline() for _ in range(after)]
    child.send_signal(signal.SIGKILL)
    lines += child.stdout.readlines()
    assert child.wait() == -signal.SIGKILL
    acknowledged = {int(line) for line in lines if line.endswith("\n")}
    assert len(acknowledged) >= after
    again = Project(project.folder)
    kept = {own.row * 24 + own.col: number for own, number in again.labels()[0].items()}
    assert acknowledged <= set(kept) and len(kept) <= len(acknowledged) + 1
    assert all(number == 1 + place % 3 for place, number in kept.items())
    assert len(pyogrio.read_dataframe(project.folder / "labels.gpkg", layer="labels")) == len(kept)


def _write_rows(folder: Path, who: str, number: int) -> None:
    own = Project(folder)
    for col in range(24):
        own.label([cell(5, col)], number, who)
    os._exit(0)


def test_two_processes_and_two_threads_write_at_once(project: Project) -> None:
    others = [
        multiprocessing.get_context("spawn").Process(target=_write_rows, args=(project.folder, who, number))
        for who, number in (("anna", 1), ("ben", 2))
    ]
    for other in others:
        other.start()

    def write(row: int) -> None:
        for col in range(24):
            project.label([cell(row, col)], 3, f"thread {row}")

    threads = [threading.Thread(target=write, args=(row,)) for row in (7, 8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for other in others:
        other.join(120)
    agreed, conflicts = project.labels()
    assert len(agreed) == 48 and len(conflicts) == 24
    assert project.store.version() == 96


def test_what_is_sent_again_is_written_once(project: Project) -> None:
    assert project.label([cell(1, 1)], 1, "anna", once="first-click") == 1
    project.label([cell(1, 1)], 2, "anna", once="second-click")
    assert project.label([cell(1, 1)], 1, "anna", once="first-click") == 0
    project.close()
    project = Project(project.folder)  # also after a restart
    assert project.label([cell(1, 1)], 1, "anna", once="first-click") == 0
    assert project.labels()[0] == {cell(1, 1): 2}
    assert project.label([cell(1, 1)], 1, "ben", once="first-click") == 1  # another person's name of a step
    with pytest.raises(DataError, match="no class"):
        project.label([cell(1, 1)], 9, "anna", once="third-click")
    assert project.label([cell(1, 1)], 3, "anna", once="third-click") == 1  # nothing was written before


def test_a_writer_that_is_slow_is_waited_for(project: Project) -> None:
    other = sqlite3.connect(project.folder / "labels.gpkg", isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    timer = threading.Timer(0.5, lambda: other.execute("COMMIT"))
    timer.start()
    start = time.monotonic()
    project.label([cell(1, 1)], 1, "anna")
    assert time.monotonic() - start > 0.3
    timer.join()
    other.close()


def _said_by_ben(folder: Path) -> Path:
    """The labels of a colleague's project."""
    folder.mkdir()
    other = make_project(folder)
    other.label([cell(2, 2), cell(3, 3), cell(4, 4)], 2, "ben")
    other.close()
    return other.folder / "labels.gpkg"


def test_undoing_a_load_leaves_what_was_said_since(project: Project, tmp_path: Path) -> None:
    path = _said_by_ben(tmp_path / "b")
    assert load_labels(project, path, None, "anna").labels == 3
    project.label([cell(3, 3)], 3, "ben")  # ben sees it, and knows better by now
    undone = project.undo("anna")
    assert sorted(undone) == [cell(2, 2), cell(4, 4)] and undone.left == 1
    assert project.labels()[0] == {cell(3, 3): 3}
    redone = project.redo("anna")
    assert sorted(redone) == [cell(2, 2), cell(4, 4)] and redone.left == 1
    assert project.labels()[0] == {cell(2, 2): 2, cell(3, 3): 3, cell(4, 4): 2}


def test_a_step_of_which_nothing_is_left_is_undone_all_the_same(project: Project, tmp_path: Path) -> None:
    project.label([cell(9, 9)], 1, "anna")
    load_labels(project, _said_by_ben(tmp_path / "b"), None, "anna")
    project.label([cell(2, 2), cell(3, 3), cell(4, 4)], 3, "ben")
    undone = project.undo("anna")
    assert undone == [] and undone.left == 3
    assert project.undo("anna") == [cell(9, 9)]  # and not the load for ever
    assert project.labels()[0] == {cell(2, 2): 3, cell(3, 3): 3, cell(4, 4): 3}


def test_a_load_that_was_undone_can_be_loaded_again(project: Project, tmp_path: Path) -> None:
    path = _said_by_ben(tmp_path / "b")
    load_labels(project, path, None, "anna")
    assert load_labels(project, path, None, "anna").labels == 0
    project.undo("anna")
    assert project.labels()[0] == {}
    assert load_labels(project, path, None, "anna").labels == 3
    project.undo("anna")
    project.redo("anna")
    assert load_labels(project, path, None, "anna").labels == 0
    assert project.labels()[0] == {cell(2, 2): 2, cell(3, 3): 2, cell(4, 4): 2}


def _two_rasters(folder: Path) -> Project:
    """A project of two images of the same place, as of two years."""
    project = make_project(folder)
    project.close()
    second = write_scene(folder / "later.tif")
    add_raster(project.folder, second, write_index(folder / "later.zarr", second))
    return Project(project.folder)


def test_labels_of_a_colleague_are_of_the_raster_that_they_name(project: Project, tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
    other, own = _two_rasters(tmp_path / "a"), _two_rasters(tmp_path / "b")
    later = Cell("later.tif", 3, 3)
    other.label([cell(2, 2)], 1, "ben")
    other.label([later], 2, "ben", suggested=True)
    other.close()
    found = load_labels(own, other.folder / "labels.gpkg", None, "anna")
    assert found.labels == 2 and found.left_out == {}
    assert own.labels()[0] == {cell(2, 2): 1, later: 2}
    assert own.store.suggested() == {later}
    assert sorted(own.undo("anna")) == [later, cell(2, 2)]
    assert load_labels(own, other.folder / "labels.gpkg", None, "anna").labels == 2
    # a raster that the project does not have by this name: its place counts
    later_only = load_labels(project, other.folder / "labels.gpkg", None, "anna")
    assert later_only.labels == 2 and project.labels()[0] == {cell(2, 2): 1, cell(3, 3): 2}
    assert project.store.suggested() == {cell(3, 3)}


def test_names_of_classes_in_files_may_be_written_unusually(project: Project, tmp_path: Path) -> None:
    plain = "for\u00eat claire"
    project.add_class(plain)
    names = [unicodedata.normalize("NFD", plain), "for\u00eat  claire", "bare  ground", "bare ground"]
    x, y = 500_000, 5_600_000
    points = [shapely.Point(x + 5 * col + 2, y - 12) for col in range(4)]
    path = tmp_path / "survey.gpkg"
    pyogrio.raw.write(
        path, shapely.to_wkb(np.array(points, object)), [np.array(names, object)], ["class"],
        geometry_type="Point", crs="EPSG:25832",
    )  # fmt: skip
    found = load_labels(project, path, None, "anna")
    assert found.labels == 4 and found.classes == ("bare ground",)
    assert project.labels()[0] == {cell(2, 0): 4, cell(2, 1): 4, cell(2, 2): 5, cell(2, 3): 5}


def _settled(project: Project) -> None:
    """A conflict that clara has settled: town."""
    project.label([cell(4, 4)], 1, "anna")
    project.label([cell(4, 4)], 2, "ben")
    project.label([cell(4, 4)], 2, "clara", resolve=True)


@pytest.mark.parametrize(("number", "into"), [(1, 3), (2, 3), (1, 2), (2, 1)])
def test_what_was_settled_stays_settled_when_classes_are_merged(project: Project, number: int, into: int) -> None:
    _settled(project)
    project.remove_class(number, "anna", into)
    assert project.labels() == ({cell(4, 4): into if number == 2 else 2}, {})


@pytest.mark.parametrize(("who", "number"), [("clara", 3), ("anna", 3), ("ben", None), ("clara", None)])
def test_undoing_a_later_label_settles_again_what_was_settled(project: Project, who: str, number: int | None) -> None:
    _settled(project)
    project.label([cell(4, 4)], number, who)
    before = project.labels()
    project.undo(who)
    assert project.labels() == ({cell(4, 4): 2}, {})
    project.redo(who)
    assert project.labels()[0] == before[0]
    project.undo(who)
    assert project.labels() == ({cell(4, 4): 2}, {})


def test_what_a_colleague_has_settled_is_settled(project: Project, tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    other = make_project(tmp_path / "b")
    _settled(other)
    other.label([cell(5, 5)], 1, "anna")
    other.label([cell(5, 5)], 2, "ben", resolve=True)
    other.label([cell(5, 5)], 3, "anna")  # and opens it again
    path = other.folder / "labels.gpkg"
    project.label([cell(4, 4)], 1, "anna")
    assert load_labels(project, path, None, "anna").conflicts == 1
    agreed, conflicts = project.labels()
    assert agreed == {cell(4, 4): 2} and list(conflicts) == [cell(5, 5)]
    version = project.store.version()
    assert load_labels(project, path, None, "anna").labels == 0 and project.store.version() == version
    project.undo("anna")
    project.label([cell(4, 4)], 3, "dora")  # of which the colleague did not know
    load_labels(project, path, None, "anna")
    assert cell(4, 4) in project.labels()[1]


def test_what_was_loaded_is_not_loaded_again_after_a_merge(project: Project, tmp_path: Path) -> None:
    path = _said_by_ben(tmp_path / "b")
    assert load_labels(project, path, None, "anna").labels == 3
    project.remove_class(2, "anna", into=1)
    version, classes = project.store.version(), project.classes
    again = load_labels(project, path, None, "anna")
    assert again.labels == 0 and again.classes == () and project.classes == classes
    project.remove_class(1, "anna", with_labels=True)
    assert load_labels(project, path, None, "anna").labels == 0
    assert [own.name for own in project.classes] == ["water"] and project.store.version() == version + 3


def test_a_file_does_not_speak_in_the_name_of_others(project: Project, tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    other = make_project(tmp_path / "b")
    for number, who in enumerate(("anna", "A\u200bNNA", "ben", "dora")):
        other.label([cell(3, number)], 1, who)
    project.label([cell(4, 4)], 1, "anna")
    other.label([cell(4, 4)], 1, "anna")
    path = other.folder / "labels.gpkg"
    assert load_labels(project, path, None, "ben", ["anna", "ben"]).labels == 4
    said = {own: [label.who for label in labels] for own, labels in project.store.labels().items()}
    assert said[cell(3, 0)] == ["anna (labels.gpkg)"] and said[cell(3, 1)] == ["A\u200bNNA (labels.gpkg)"]
    assert said[cell(3, 2)] == ["ben"] and said[cell(3, 3)] == ["dora"] and said[cell(4, 4)] == ["anna"]
    assert load_labels(project, path, None, "ben", ["anna", "ben"]).labels == 0
    assert load_labels(project, path, None, "anna", ["anna", "ben"]).labels == 0


@pytest.mark.parametrize(
    "harm",
    [
        "DROP TABLE history; CREATE VIEW history AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x FROM n) "
        "SELECT x AS id, 'suggested' AS kind, 'a' AS raster, x AS row, x AS col FROM n",
        "ALTER TABLE labels ADD COLUMN more TEXT AS (hex(zeroblob(1000000000)))",
        "ALTER TABLE gpkg_spatial_ref_sys RENAME TO x; CREATE VIEW gpkg_spatial_ref_sys AS SELECT * FROM x",
        "CREATE VIRTUAL TABLE more USING fts5(x)",
    ],
)
def test_a_file_that_computes_what_it_says_is_refused(project: Project, tmp_path: Path, harm: str) -> None:
    path = _said_by_ben(tmp_path / "b")
    with sqlite3.connect(path) as database:
        database.executescript(f"DROP TRIGGER history_is_kept; {harm}")
    with pytest.raises(DataError, match=r"a view or computed columns .*Save Features As"):
        load_labels(project, path, None, "anna")
    assert project.store.version() == 0


def test_a_class_is_there_however_its_name_is_written(project: Project) -> None:
    for _ in range(2):
        project.add_missing(["dense  housing", unicodedata.normalize("NFD", "for\u00eat")])
    assert [own.name for own in project.classes][3:] == ["dense housing", "for\u00eat"]
