from __future__ import annotations

from pathlib import Path
from typing import Any

import geopandas
import httpx
import numpy as np
import pytest
import shapely

from mgcap import geo
from mgcap.errors import DataError, MgcapError
from mgcap.labelling.preparing import Beginning
from tests.labelling.projects import make_project


def _client(page: Any) -> httpx.Client:
    where, token = page.url.split("/#token=")
    return httpx.Client(base_url=where, headers={"Authorization": f"Bearer {token}"}, timeout=60)


def test_a_raster_is_labelled_from_python_and_gives_a_classifier(
    model_file: Path, picture: Any, write_raster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    raster = write_raster(np.asarray(picture))
    with geo.label(raster, beginning=Beginning(model_file), classes=["wood", "town"], cells=2) as page:
        assert page.folder == Path("scene.labels") and page.url in page._repr_html_()
        with pytest.raises(DataError, match="label cells of two classes"):
            page.classifier()
        with _client(page) as client:
            state = client.get("/api/label/state").json()
            side = state["rasters"][0]
            for number, col in ((1, 0), (2, side["columns"] - 1)):
                cells = [[0, row, col] for row in range(side["rows"])]
                assert client.post("/api/label/label", json={"cells": cells, "number": number}).status_code == 200
        assert page.classifier().classes_.tolist() == ["wood", "town"]
        assert sorted(page.labels()["class"]) == ["town"] * side["rows"] + ["wood"] * side["rows"]
        url = page.url
    with pytest.raises(httpx.ConnectError):
        httpx.get(url.split("#")[0])
    with geo.label(project="scene.labels", classes=["Wood", "water"]) as again:
        assert again.url == url  # a page that is open finds it again
        with _client(again) as client:
            assert [own["name"] for own in client.get("/api/label/state").json()["classes"]] == [
                "wood",
                "town",
                "water",
            ]


def test_labels_and_classes_are_given_as_they_are_at_hand(tmp_path: Path) -> None:
    make_project(tmp_path, ()).close()
    folder = tmp_path / "scene.labels"
    points = [shapely.Point(500_012, 5_600_000 - y) for y in (52, 58, 62)]
    table = geopandas.GeoDataFrame({"kind": ["wood", None, "lake"]}, geometry=points, crs="EPSG:25832")
    with geo.label(project=folder, classes="forest, housing,", labels=table, field="kind") as page:
        assert sorted(page.labels()["class"]) == ["lake", "wood"]
        with _client(page) as client:
            names = [own["name"] for own in client.get("/api/label/state").json()["classes"]]
        assert names == ["forest", "housing", "wood", "lake"]
    with pytest.raises(DataError, match="no column 'class'; it has kind, geometry"):
        geo.label(project=folder, labels=table)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"cells": 2}, "`cells` is for rasters; give those of the project too"),
        ({"beginning": Beginning()}, "`beginning` is for rasters"),
        ({"index": "scene.zarr"}, "`index` is for rasters"),
        ({"field": "kind"}, "`field` names a field of `labels`"),
        ({"labels": 3}, "takes vector files or GeoDataFrames"),
    ],
)
def test_what_would_have_no_effect_is_refused(tmp_path: Path, given: dict[str, Any], words: str) -> None:
    make_project(tmp_path).close()
    with pytest.raises(DataError, match=words):
        geo.label(project=tmp_path / "scene.labels", allow_vrt=True, **given)


def test_a_port_that_is_taken_and_nothing_to_label_are_said(tmp_path: Path) -> None:
    make_project(tmp_path).close()
    folder = tmp_path / "scene.labels"
    with geo.label(project=folder) as page:
        port = int(page.url.rsplit(":", 1)[1].split("/")[0])
        with pytest.raises(DataError, match=f"could not be served at .*:{port}"):
            geo.label(project=folder, port=port)
    with pytest.raises(DataError, match="give a raster to label"):
        geo.label()
    with pytest.raises(DataError, match="no project"):
        geo.label(project=tmp_path / "nowhere")
    with pytest.raises(MgcapError, match="sells"):
        geo.label(project=folder, sells=2)
