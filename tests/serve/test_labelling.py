from __future__ import annotations

import io
import json
import socket
import sqlite3
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyogrio
import pytest
import shapely
from fastapi.testclient import TestClient
from PIL import Image

from mgcap.errors import DataError, MgcapError
from mgcap.evaluation.assessment import Estimate
from mgcap.geo.opening import open_raster
from mgcap.geo.raster import Look
from mgcap.labelling.about import add_raster, create_project
from mgcap.labelling.live import Live, Measured
from mgcap.labelling.loading import load_labels
from mgcap.labelling.project import Project
from mgcap.labelling.saving import _card, _measured, card
from mgcap.labelling.store import Cell
from mgcap.serve.label_files import map_names
from mgcap.serve.labellers import keep_port, port_for, tokens_for
from mgcap.serve.labelling import create_label_app
from mgcap.serve.pyramid import Pyramid
from mgcap.serve.settings import Settings
from tests.labelling.projects import COLUMNS, ROWS, kinds, make_project, write_index, write_scene

ANNA, BEN = "anna-anna-anna", "ben-ben-ben-ben"


def _no_model() -> Any:
    raise DataError("there is no model here")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return make_project(tmp_path)


@pytest.fixture
def client(project: Project) -> Iterator[TestClient]:
    settings = Settings(people={ANNA: "anna", BEN: "ben"})
    app = create_label_app(Live(project, _no_model), "nobody", settings)
    with TestClient(app, base_url="http://127.0.0.1", headers={"Authorization": f"Bearer {ANNA}"}) as own:
        yield own


def _label(client: TestClient, cells: list[list[int]], number: int | None, **more: Any) -> dict[str, Any]:
    reply = client.post("/api/label/label", json={"cells": cells, "number": number, **more})
    assert reply.status_code == 200, reply.text
    return dict(reply.json())


def _settled(client: TestClient) -> dict[str, Any]:
    """The state when the map follows all labels."""
    for _ in range(1000):
        state = dict(client.get("/api/label/state").json())
        if not state["refitting"]:
            return state
        time.sleep(0.01)
    raise AssertionError("it was not refitted")


def _teach(client: TestClient, step: int = 5) -> None:
    for kind in range(3):
        cells = np.argwhere(kinds() == kind)
        cells = cells[cells[:, 0] > 0][::step]
        _label(client, [[0, int(r), int(c)] for r, c in cells], kind + 1)


def test_without_a_token_only_the_page_is_given(client: TestClient) -> None:
    del client.headers["Authorization"]
    for path in ("/", "/static/label.js", "/static/vendor/leaflet/leaflet.js", "/health"):
        reply = client.get(path)
        assert reply.status_code == 200
        assert "default-src 'self'" in reply.headers["content-security-policy"]
    for path in ("state", "labels", "tiles/0/0/0/0.jpg", "overlays/0/map.png", "files/project.json"):
        assert client.get(f"/api/label/{path}").status_code == 401
    assert client.post("/api/label/undo").status_code == 401
    wrong = {"Authorization": "Bearer sesame"}
    assert client.post("/api/label/label", json={"cells": [[0, 1, 1]], "number": 1}, headers=wrong).status_code == 401
    right = {"Authorization": f"Bearer {ANNA}"}
    assert client.get("/api/label/state", headers={**right, "Host": "evil.example"}).status_code == 421
    assert client.post("/api/label/undo", headers={**right, "Origin": "http://evil.example"}).status_code == 403


def test_labels_make_a_map_that_follows_the_ground(client: TestClient) -> None:
    before = _settled(client)
    assert before["person"] == "anna" and not before["fitted"] and before["labels"] == 0
    _teach(client)
    state = _settled(client)
    assert state["fitted"] and state["labels"] == sum(own["labels"] for own in state["classes"]) > 60
    assert state["estimate"]["value"] > 0.9 and state["estimate"]["low"] < state["estimate"]["value"]
    reply = client.get("/api/label/overlays/0/map.png")
    pixels = np.asarray(Image.open(io.BytesIO(reply.content)))
    colours = np.array([[int(own["colour"][i : i + 2], 16) for i in (1, 3, 5)] for own in state["classes"]])
    assert pixels.shape == (ROWS, COLUMNS, 4)
    assert (pixels[0] == 0).all() and (pixels[1:, :, 3] == 255).all()  # the first row has no data
    assert (pixels[1:, :, :3] == colours[kinds()[1:]]).all(-1).mean() > 0.97
    again = client.get("/api/label/overlays/0/map.png", headers={"If-None-Match": reply.headers["etag"]})
    assert again.status_code == 304
    for layer in ("uncertainty", "unknown"):
        assert Image.open(io.BytesIO(client.get(f"/api/label/overlays/0/{layer}.png").content)).size == (COLUMNS, ROWS)
    assert client.get("/api/label/overlays/0/other.png").status_code == 400
    assert client.get("/api/label/overlays/1/map.png").status_code == 404
    cell = client.get("/api/label/cell", params={"raster": 0, "row": 5, "col": 22}).json()
    assert cell["probabilities"][0]["number"] == 3 and cell["data"]


def test_steps_are_undone_and_what_each_said_is_kept(client: TestClient, project: Project) -> None:
    _label(client, [[0, 2, 2], [0, 2, 3]], 1)
    _label(client, [[0, 3, 3]], 2)
    assert client.post("/api/label/undo").json()["cells"] == [[0, 3, 3]]
    assert client.post("/api/label/redo").json()["cells"] == [[0, 3, 3]]
    ben = {"Authorization": f"Bearer {BEN}"}
    assert client.post("/api/label/undo", headers=ben).json()["cells"] == []
    client.post("/api/label/label", json={"cells": [[0, 3, 3]], "number": 3}, headers=ben)
    state = _settled(client)
    assert state["conflicts"] == 1 and state["labels"] == 2
    assert [0, 3, 3, 0] in client.get("/api/label/labels").json()["labels"]
    said = client.get("/api/label/conflicts").json()["cells"][0]
    assert {own["who"]: own["number"] for own in said["labels"]} == {"anna": 2, "ben": 3}
    assert project.labels()[0].get(Cell("scene.tif", 3, 3)) is None
    _label(client, [[0, 3, 3]], 3, resolve=True)
    assert _settled(client)["conflicts"] == 0
    assert [0, 3, 3, 3] in client.get("/api/label/labels").json()["labels"]


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("label", {"cells": [[0, 99, 0]], "number": 1}, 400),
        ("label", {"cells": [[7, 1, 1]], "number": 1}, 400),
        ("label", {"cells": [[0, 1]], "number": 1}, 422),
        ("label", {"cells": [[0, -1, 1]], "number": 1}, 422),
        ("label", {"cells": [[0, 1, 1]], "number": 9}, 400),
        ("label", {"cells": [[0, 1, 1]], "number": "1"}, 422),
        ("label", {"cells": [[0, 0, 1]], "number": 1}, 400),
        ("label", {"cells": [[0, 1, 1]] * 20_001, "number": 1}, 422),
        ("label", {"cells": [[0, 1, 1]], "number": 1, "who": "ben"}, 422),
        ("classes/add", {"name": "wood"}, 400),
        ("classes/add", {"name": "  "}, 400),
        ("classes/add", {"name": "x" * 500}, 422),
        ("classes/add", {"name": "x", "colour": "red"}, 422),
        ("classes/change", {"number": 77, "name": "x"}, 400),
        ("classes/remove", {"number": 1, "into": 1}, 400),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(
    client: TestClient, path: str, body: dict[str, Any], status: int
) -> None:
    reply = client.post(f"/api/label/{path}", json=body)
    assert reply.status_code == status
    assert reply.json()["error"] and "\n" not in reply.json()["error"]
    assert client.get("/api/label/labels").json()["labels"] == []


def test_classes_come_and_go(client: TestClient) -> None:
    made = client.post("/api/label/classes/add", json={"name": "Straße"}).json()
    assert made["number"] == 4 and made["colour"].startswith("#")
    _label(client, [[0, 2, 2]], 4)
    client.post("/api/label/classes/change", json={"number": 4, "name": "road", "colour": "#00ff00"})
    assert {"number": 4, "name": "road", "colour": "#00ff00", "labels": 1}.items() <= _settled(client)["classes"][
        3
    ].items()
    ben = {"Authorization": f"Bearer {BEN}"}
    client.post("/api/label/label", json={"cells": [[0, 2, 2]], "number": 1}, headers=ben)  # contradicts
    state = _settled(client)
    assert (state["classes"][3]["labels"], state["classes"][3]["all"]) == (0, 1)
    kept = client.post("/api/label/classes/remove", json={"number": 4}).json()
    assert kept["labels"] == 1 and kept["removed"] is False and len(_settled(client)["classes"]) == 4
    client.post("/api/label/label", json={"cells": [[0, 2, 2]], "number": None}, headers=ben)
    merged = client.post("/api/label/classes/remove", json={"number": 4, "into": 2}).json()
    assert merged["labels"] == 1 and merged["removed"] is True
    state = _settled(client)
    assert [own["name"] for own in state["classes"]] == ["wood", "town", "water"]
    assert client.get("/api/label/labels").json()["labels"] == [[0, 2, 2, 2]]


def test_proposals_are_cells_without_labels(client: TestClient) -> None:
    assert len(client.get("/api/label/suggest").json()["cells"]) > 0  # also before the first label
    _teach(client, 9)
    _label(client, [[0, 4, 0]], 3)  # wrong: it is green
    labelled = {tuple(own[:3]) for own in client.get("/api/label/labels").json()["labels"]}
    for mode in ("teach", "rare", "unknown"):
        found = client.get("/api/label/suggest", params={"mode": mode}).json()["cells"]
        assert found and all(tuple(own["cell"]) not in labelled and own["reason"] for own in found)
    alike = client.get("/api/label/similar", params={"raster": 0, "row": 9, "col": 20, "count": 5}).json()["cells"]
    assert alike and all(kinds()[own["cell"][1], own["cell"][2]] == 2 for own in alike)
    wrong = client.get("/api/label/mistakes").json()["cells"]
    assert [own["cell"] for own in wrong][:1] == [[0, 4, 0]] and wrong[0]["likely"] == 1
    assert client.get("/api/label/suggest", params={"mode": "x"}).status_code == 422


def test_the_accuracy_is_measured_by_labels_that_were_not_suggested(client: TestClient) -> None:
    found = client.get("/api/label/suggest", params={"mode": "random"}).json()["cells"]
    cells = np.array([own["cell"][1:] for own in found])
    assert len(cells) == 10 and np.abs(cells[:, None] - cells).max(-1)[~np.eye(10, dtype=bool)].min() >= 2
    _teach(client, 5)
    easy = _settled(client)
    assert easy["measured"] == {"labels": easy["labels"], "suggested": False} and easy["random"] is not None
    for row in range(2, 14, 2):  # wrong on purpose, so that they would spoil the figure
        _label(client, [[0, row, 3]], 3, suggested=True)
    state = _settled(client)
    assert state["measured"]["labels"] <= easy["labels"] and not state["measured"]["suggested"]
    assert state["estimate"]["value"] > 0.85
    assert len(client.get("/api/label/suggest", params={"mode": "random"}).json()["cells"]) == 10


def test_a_page_is_told_of_what_others_and_other_processes_do(client: TestClient, project: Project) -> None:
    revision = _settled(client)["revision"]
    other = Project(project.folder)
    threading.Timer(0.3, lambda: other.label([Cell("scene.tif", 7, 7)], 1, "clara")).start()
    state = {"revision": revision}
    for _ in range(5):
        state = client.get("/api/label/state", params={"after": state["revision"]}).json()
        if state["labels"]:
            break
    assert state["revision"] > revision and state["labels"] == 1


def test_a_page_sees_classes_that_another_process_makes(client: TestClient, project: Project) -> None:
    _teach(client)
    other = Project(project.folder)
    other.change_class(1, name="forest")  # the history does not grow by this

    def seen(number: int) -> dict[str, Any]:
        """A class, once the page has heard of something."""
        revision = client.get("/api/label/state").json()["revision"]
        state = client.get("/api/label/state", params={"after": revision}).json()
        return dict(state["classes"][number]) if number < len(state["classes"]) else {}

    assert any(seen(0)["name"] == "forest" for _ in range(5))
    bare = other.add_class("bare").number
    other.label([Cell("scene.tif", 7, 7), Cell("scene.tif", 9, 9)], 1, "clara")
    other.label([Cell("scene.tif", 7, 7), Cell("scene.tif", 9, 9)], bare, "clara")
    assert any(seen(3).get("all") == 2 for _ in range(5))
    assert _settled(client)["problem"] == ""
    assert client.get("/api/label/overlays/0/map.png").status_code == 200


def test_labels_of_a_class_that_is_not_known_teach_nothing(client: TestClient, project: Project) -> None:
    _teach(client)
    known = _settled(client)["fitted_labels"]
    path = project.folder / "project.json"
    about = path.read_text()
    other = Project(project.folder)
    other.label([Cell("scene.tif", 7, 9)], other.add_class("bare").number, "clara")
    path.write_text(about)  # as of a copy that somebody kept
    client.get("/api/label/state", params={"after": _settled(client)["revision"]})
    assert _settled(client)["fitted_labels"] == known
    assert client.get("/api/label/overlays/0/map.png").status_code == 200


def test_a_raster_that_another_process_adds_is_left_out(client: TestClient, project: Project, tmp_path: Path) -> None:
    second = write_scene(tmp_path / "later.tif")
    add_raster(project.folder, second, write_index(tmp_path / "later.zarr", second))
    other = Project(project.folder)
    for number, who in enumerate(("anna", "ben"), 1):
        other.label([Cell("later.tif", 7, 7), Cell("scene.tif", 7, 7)], number, who)
    client.post("/api/label/classes/add", json={"name": "bare"})
    assert [own["cell"] for own in client.get("/api/label/conflicts").json()["cells"]] == [[0, 7, 7]]
    assert client.get("/api/label/state").json()["conflicts"] == 1
    assert len(project.about.rasters) == len(project.indexes) == 1
    assert client.post("/api/label/undo").json()["cells"] == [[0, 7, 7]]
    reply = client.post("/api/label/redo")
    assert reply.status_code == 400 and "start again" in reply.json()["error"]


def test_who_checks_labels_sees_their_own(client: TestClient) -> None:
    _teach(client)
    ben = {"Authorization": f"Bearer {BEN}"}
    body = {"cells": [[0, 5, 1]], "number": 3}
    assert client.post("/api/label/label", json=body, headers=ben).status_code == 200
    _label(client, [[0, 9, 20]], 1)
    _settled(client)
    found = [client.get("/api/label/mistakes", headers=own).json()["cells"] for own in ({}, ben)]
    assert [own["cell"] for own in found[0]][:1] == [[0, 9, 20]] and [0, 5, 1] not in [own["cell"] for own in found[0]]
    assert [own["cell"] for own in found[1]] == [[0, 5, 1]]


def test_a_file_that_takes_long_holds_up_nobody_and_speaks_in_nobodys_name(
    client: TestClient, project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "b").mkdir()
    other = make_project(tmp_path / "b")
    other.label([Cell("scene.tif", 2, 1)], 1, "ben")
    threads, loading = set(), load_labels

    def seen(*given: Any) -> Any:
        threads.add(threading.current_thread().name)
        return loading(*given)

    monkeypatch.setattr("mgcap.serve.label_files.load_labels", seen)
    with (other.folder / "labels.gpkg").open("rb") as file:
        assert client.post("/api/label/load", files={"file": ("labels.gpkg", file)}).json()["labels"] == 1
    assert threads == {"load_0"}
    assert [own.who for own in project.store.labels()[Cell("scene.tif", 2, 1)]] == ["ben (labels.gpkg)"]


def test_tiles_are_the_pixels_of_the_raster(client: TestClient, project: Project, tmp_path: Path) -> None:
    state = client.get("/api/label/state").json()["rasters"][0]
    assert (state["width"], state["height"], state["finest"]) == (240, 180, 0)
    with open_raster(tmp_path / "scene.tif") as dataset:
        pixels = np.moveaxis(dataset.read(), 0, -1).astype(int)
    reply = client.get("/api/label/tiles/0/0/0/0.jpg")
    seen = np.asarray(Image.open(io.BytesIO(reply.content))).astype(int)
    assert reply.headers["content-type"] == "image/jpeg" and seen.shape == pixels.shape
    assert np.abs(seen - pixels).mean() < 12
    for path in ("0/1/0/0", "0/0/1/0", "1/0/0/0", "0/-1/0/0"):
        assert client.get(f"/api/label/tiles/{path}.jpg").status_code == 404


def test_fine_tiles_are_windows_and_coarse_ones_means(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import rasterio

    values = np.random.default_rng(0).integers(0, 255, (1, 700, 1100), np.uint8).repeat(3, 0)
    values = values.repeat(8, 1)[:, :700].repeat(8, 2)[:, :, :1100]  # so that JPEG loses little
    path = tmp_path / "wide.tif"
    with rasterio.open(path, "w", driver="GTiff", width=1100, height=700, count=3, dtype="uint8") as dataset:
        dataset.write(values)
    monkeypatch.setattr("mgcap.serve.pyramid.THUMBNAIL", 300)
    pyramid = Pyramid(path, Look((1, 2, 3), 0, 255))
    assert (pyramid.finest, pyramid.coarse) == (3, 1)

    def tile(z: int, x: int, y: int) -> Any:
        return np.asarray(Image.open(io.BytesIO(pyramid.tile(z, x, y).result()))).astype(int)

    expected = np.moveaxis(values, 0, -1).astype(int)
    assert np.abs(tile(3, 1, 1) - expected[256:512, 256:512]).mean() < 8
    assert tile(3, 4, 2).shape == (700 - 512, 1100 - 1024, 3)
    means = expected[:696, :1096].reshape(174, 4, 274, 4, 3).mean((1, 3))
    assert np.abs(tile(1, 0, 0)[:174, :256] - means[:, :256]).mean() < 8  # from the thumbnail
    assert tile(0, 0, 0).shape == (88, 138, 3)
    pyramid.close()


def test_labels_of_a_file_and_of_a_colleague_are_merged(client: TestClient, project: Project, tmp_path: Path) -> None:
    x, y = 500_000, 5_600_000
    shapes = [shapely.box(x + 5, y - 15, x + 15, y - 10), shapely.Point(x + 100, y - 42), shapely.Point(x - 100, y)]
    pyogrio.raw.write(
        tmp_path / "field survey.gpkg",
        shapely.to_wkb(np.array(shapes, object)),
        [np.array(["wood", "Wüste", "wood"], object)],
        ["kind"],
        geometry_type="Unknown",
        crs="EPSG:25832",
    )
    with (tmp_path / "field survey.gpkg").open("rb") as file:
        assert client.post("/api/label/load", files={"file": file}).status_code == 400  # no field 'class'
    with (tmp_path / "field survey.gpkg").open("rb") as file:
        found = client.post("/api/label/load", files={"file": file}, data={"field": "kind"}).json()
    assert found["labels"] == 3 and found["classes"] == ["Wüste"] and sum(found["left_out"].values()) == 1
    labels = {tuple(own) for own in client.get("/api/label/labels").json()["labels"]}
    assert labels == {(0, 2, 1, 1), (0, 2, 2, 1), (0, 8, 20, 4)}
    (tmp_path / "b").mkdir()
    other = make_project(tmp_path / "b", ("water", "wood"))
    other.label([Cell("scene.tif", 2, 1)], 1, "ben")  # water, where anna has wood
    other.label([Cell("scene.tif", 9, 9)], 2, "ben")
    other.label([Cell("scene.tif", 8, 20)], 2, "anna")  # and she said something else there herself
    with (other.folder / "labels.gpkg").open("rb") as file:
        found = client.post("/api/label/load", files={"file": ("labels.gpkg", file)}).json()
    assert found["labels"] == 3 and found["conflicts"] == 2
    assert project.labels()[0][Cell("scene.tif", 9, 9)] == 1
    assert {own.who for own in project.labels()[1][Cell("scene.tif", 8, 20)]} == {"anna", "anna (labels.gpkg)"}
    version = project.store.version()
    with (other.folder / "labels.gpkg").open("rb") as file:  # what was loaded once is not loaded again
        again = client.post("/api/label/load", files={"file": ("labels.gpkg", file)}).json()
    assert again["labels"] == 0 and project.store.version() == version
    assert client.post("/api/label/load", files={"file": ("x.exe", b"MZ")}).status_code == 415
    reply = client.post("/api/label/load", files={"file": ("x.gpkg", b"MZ")})
    assert reply.status_code == 400 and str(tmp_path) not in reply.text


def test_labels_that_wait_for_another_process_may_be_sent_again(client: TestClient, project: Project) -> None:
    other = sqlite3.connect(project.folder / "labels.gpkg", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    project.store._database.execute("PRAGMA busy_timeout=50")
    body = {"cells": [[0, 3, 3]], "number": 1, "once": "a-click-of-anna"}
    reply = client.post("/api/label/label", json=body)
    assert reply.status_code == 503 and "cannot be written" in reply.json()["error"]
    other.execute("COMMIT")
    other.close()
    assert [client.post("/api/label/label", json=body).json()["changed"] for _ in range(2)] == [1, 0]
    assert project.store.version() == 1


def test_the_port_of_a_project_is_taken_again_if_it_is_free(project: Project) -> None:
    assert port_for(project.folder) == 0
    with socket.socket() as own:
        own.bind(("127.0.0.1", 0))
        own.listen()
        port = own.getsockname()[1]
        keep_port(project.folder, port)
        assert port_for(project.folder) == 0
    assert port_for(project.folder) == port
    (project.folder / "port.json").write_text('"80"')
    assert port_for(project.folder) == 0


def test_what_cannot_be_saved_is_said(client: TestClient) -> None:
    assert client.post("/api/label/save").status_code == 200
    for _ in range(300):
        job = client.get("/api/label/state").json()["job"]
        if job["done"]:
            break
        time.sleep(0.01)
    assert "label cells of two classes" in job["error"]
    for name in ("project.json", "people.json", "..%2Fscene.tif", "model.mgcap"):
        assert client.get(f"/api/label/files/{name}").status_code == 404


def test_tokens_of_people_stay_and_are_nobody_elses(project: Project) -> None:
    first = tokens_for(project.folder, ["anna", "ben"])
    assert sorted(first.values()) == ["anna", "ben"]
    assert tokens_for(project.folder, []) == first
    assert {
        token: name for token, name in tokens_for(project.folder, ["ben", "clara"]).items() if name == "ben"
    }.items() <= first.items()
    path = project.folder / "people.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.write_text(json.dumps({"anna": ""}))
    with pytest.raises(DataError, match="damaged"):
        tokens_for(project.folder, ["anna"])


def test_a_project_of_a_raster_without_a_place(tmp_path: Path) -> None:
    raster = write_scene(tmp_path / "scene.tif", crs=None)
    create_project(tmp_path / "p", "ucmerced")
    add_raster(tmp_path / "p", raster, write_index(tmp_path / "scene.zarr", raster))
    project = Project(tmp_path / "p")
    project.add_class("wood")
    project.label([Cell("scene.tif", 3, 4)], 1, "anna")
    table = pyogrio.read_dataframe(tmp_path / "p" / "labels.gpkg", layer="labels")
    assert len(table) == 1 and abs(table.geometry[0].area) == 100


def test_lists_of_ten_have_two_random_places_to_measure_by(client: TestClient) -> None:
    _teach(client, 9)
    labelled = {tuple(own[:3]) for own in client.get("/api/label/labels").json()["labels"]}
    for count, wanted in ((10, 2), (5, 1), (4, 0)):
        found = client.get("/api/label/suggest", params={"count": count}).json()["cells"]
        places = [tuple(own["cell"]) for own in found]
        assert len(found) == len(set(places)) == count and not labelled & set(places)
        drawn = [number for number, own in enumerate(found) if own["random"]]
        assert len(drawn) == wanted and all(found[n]["reason"] == "a random place, to measure by" for n in drawn)
    for mode in ("rare", "unknown"):
        found = client.get("/api/label/suggest", params={"mode": mode}).json()["cells"]
        assert not any(own["random"] for own in found)
    found = client.get("/api/label/suggest").json()["cells"]
    assert [number for number, own in enumerate(found) if own["random"]] == [4, 9]
    first = ",".join(map(str, found[0]["cell"]))
    again = client.get("/api/label/suggest", params={"count": 3, "measure": 0, "keep": [first]}).json()["cells"]
    assert len(again) == 3 and not any(own["random"] for own in again)
    near = np.array([own["cell"][1:] for own in again]) - found[0]["cell"][1:]
    assert (np.abs(near).max(1) >= 2).all()  # what is kept is not proposed again, nor what overlaps it
    assert client.get("/api/label/suggest", params={"keep": ["0,1"]}).status_code == 422
    assert client.get("/api/label/suggest", params={"keep": ["0,99,1"]}).status_code == 400


def _curve(client: TestClient) -> list[dict[str, Any]]:
    for _ in range(1000):
        if points := client.get("/api/label/state").json()["curve"]:
            return list(points)
        time.sleep(0.02)
    raise AssertionError("there is no curve")


def test_the_curve_is_drawn_also_where_most_labels_were_suggested(client: TestClient) -> None:
    for kind in range(3):
        cells = np.argwhere(kinds() == kind)
        cells = cells[cells[:, 0] > 0][::5]
        _label(client, [[0, int(r), int(c)] for r, c in cells], kind + 1, suggested=True)
    state = _settled(client)
    assert state["measured"]["suggested"] and "better than this says" in state["advice"]
    points = _curve(client)
    assert len(points) >= 3 and points[-1]["labels"] == state["labels"]
    assert points[-1]["value"] == state["estimate"]["value"]


def test_the_card_says_the_accuracy_of_the_page() -> None:
    every = {"value": 0.7, "low": 0.6, "high": 0.8, "block": 3.0}
    metrics = {"accuracy_blocks": every, "accuracy_random": every, "classes": 3}
    found = _measured(metrics, Measured(Estimate(0.9, 0.85, 0.95, 0.02), 30, False), 100)
    assert found == {"accuracy_blocks": {**every, "value": 0.9, "low": 0.85, "high": 0.95}, "classes": 3}
    whole = _measured(metrics, Measured(Estimate(0.7, 0.6, 0.8, 0.02), 100, False), 100)
    assert whole == metrics
    own: Any = SimpleNamespace(
        metrics_=found,
        provenance_={
            "created": "today",
            "taught": {
                "base": "b", "rasters": ["a.tif"], "labels": {"wood": 60, "town": 40}, "people": 1, "prior": False,
                "measured": {"labels": 30, "suggested": False},
            },
        },
    )  # fmt: skip
    words = card(own, ["wood", "town"])
    assert "90.0 % (95 % interval 85.0 to 95.0 %)" in words and "single cells" not in words
    assert "measured by the 30 labelled cells that were not suggested" in words
    own.provenance_["taught"]["measured"] = {"labels": 100, "suggested": True}
    assert "better than this says" in card(own, ["wood", "town"])


def test_maps_of_rasters_have_names_of_their_own() -> None:
    assert map_names(["scene.tif"]) == ["scene.map.gpkg"]
    assert map_names(["a.tif", "b.tif"]) == ["a.map.gpkg", "b.map.gpkg"]
    for names in (["a.tif", "a.jp2"], ["A.tif", "a.jp2"], ["a.tif", "a.jp2", "a.tif.tif"]):
        assert len({own.casefold() for own in map_names(names)}) == len(names)


def test_a_project_of_a_stranger_does_not_say_which_rasters_are_trusted(tmp_path: Path) -> None:
    project = make_project(tmp_path)
    project.close()
    path = project.folder / "project.json"
    about = json.loads(path.read_text())
    secret = (tmp_path / "scene.tif").rename(tmp_path / "secret.tif")
    gdal = f"""<VRTDataset rasterXSize="240" rasterYSize="180"><VRTRasterBand dataType="Byte" band="1"><SimpleSource>
        <SourceFilename>{secret}</SourceFilename><SourceBand>1</SourceBand></SimpleSource></VRTRasterBand></VRTDataset>"""
    (tmp_path / "scene.vrt").write_text(gdal)
    about["rasters"][0].update(raster="../scene.vrt", allow_vrt=True)
    path.write_text(json.dumps(about))
    with pytest.raises(MgcapError, match="if you trust it"):
        create_label_app(Live(Project(project.folder), _no_model), "anna")
    app = create_label_app(Live(Project(project.folder, allow_vrt=True), _no_model), "anna")
    app.state.service.close()


def test_a_card_is_written_while_others_label() -> None:
    said: dict[int, Any] = {}

    class Said:
        @property
        def who(self) -> str:
            said[len(said)] = []  # as somebody labels just now
            return "anna"

    said[0] = [Said()]
    about = SimpleNamespace(model="m", rasters=[], prior=False)
    live: Any = SimpleNamespace(
        names=lambda: ["", "wood"], project=SimpleNamespace(about=about), said=said, learner=SimpleNamespace(block=1.0)
    )
    fitted: Any = SimpleNamespace(
        learned=SimpleNamespace(targets=np.zeros(3, int), classes=np.array([1])), measured=None
    )
    assert _card(live, fitted)["people"] == 1
