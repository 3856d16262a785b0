from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from mgcap.labelling.project import Project
from tests.cli.run import run
from tests.labelling.projects import make_project


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "give a raster to label"),
        (("nowhere.tif",), "nowhere.tif"),
        (("--project", "nowhere"), "there is no project nowhere"),
        (("--project", "nowhere", "--from-model"), "give its raster too"),
        (("x.tif", "--field", "kind"), "give both"),
    ],
)
def test_what_is_missing_is_said(
    arguments: tuple[str, ...], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run("label", *arguments, code=1)
    assert words in result.stderr
    assert list(tmp_path.iterdir()) == []


def _started(folder: Path, *arguments: object) -> tuple[subprocess.Popen[str], list[str]]:
    """A command that serves, and the lines with its addresses."""
    command = [sys.executable, "-m", "mgcap", *map(str, arguments)]
    child = subprocess.Popen(
        command,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert child.stdout is not None
    lines = [child.stdout.readline()]
    return child, lines


def _stopped(child: subprocess.Popen[str]) -> str:
    start = time.monotonic()
    child.send_signal(signal.SIGINT)
    _, words = child.communicate(timeout=60)
    assert child.returncode == 0, words
    assert time.monotonic() - start < 30
    return words


def _client(line: str) -> httpx.Client:
    found = re.search(r"(http://\S+?)/#token=(\S+)", line)
    assert found is not None, line
    return httpx.Client(base_url=found[1], headers={"Authorization": f"Bearer {found[2]}"}, timeout=60)


def test_a_raster_is_labelled_and_the_project_continued(
    model_file: Path, picture: Any, write_raster: Any, tmp_path: Path
) -> None:
    write_raster(np.asarray(picture))
    options = ("--model", model_file, "--engine", "torch", "--no-browser")
    child, lines = _started(tmp_path, "label", "scene.tif", "--classes", "wood, town", "--cells", 2, *options)
    with _client(lines[0]) as client:
        state = client.get("/api/label/state").json()
        assert [own["name"] for own in state["classes"]] == ["wood", "town"] and state["project"] == "scene"
        raster, first = state["rasters"][0], client.base_url.port
        for number, col in ((1, 0), (2, raster["columns"] - 1)):
            cells = [[0, row, col] for row in range(raster["rows"])]
            assert client.post("/api/label/label", json={"cells": cells, "number": number}).status_code == 200
        for what in ("save", "export"):
            assert client.post(f"/api/label/{what}").status_code == 200
            job: dict[str, Any] = {}
            while not job.get("done"):
                time.sleep(0.05)
                job = client.get("/api/label/state").json()["job"]
            assert job["error"] == ""
        assert client.get("/api/label/files/model.mgcap").status_code == 200
    words = _stopped(child)
    assert "stopped; the labels are in scene.labels" in words
    folder = tmp_path / "scene.labels"
    assert (folder / "scene.map.gpkg").is_file() and "| wood |" in (folder / "model.md").read_text()
    from mgcap.classifier import SceneClassifier

    taught = SceneClassifier.load(folder / "model.mgcap", engine="torch")
    assert taught.classes_.tolist() == ["wood", "town"]
    assert taught.provenance_["taught"]["labels"] == {"wood": raster["rows"], "town": raster["rows"]}
    child, lines = _started(tmp_path, "label", "scene.tif", *options[2:])  # with cells and model of the first time
    with _client(lines[0]) as client:
        assert client.base_url.port == first  # so that a page that is open finds it again
        assert client.get("/api/label/state").json()["labels"] == 2 * raster["rows"]
        assert client.post("/api/label/undo").json()["cells"]
    _stopped(child)


def test_several_people_have_addresses_that_stay(tmp_path: Path) -> None:
    make_project(tmp_path).close()
    given = ("serve", "--project", "scene.labels", "--port", 0)
    child, lines = _started(tmp_path, *given, "--people", "anna,ben")
    assert child.stdout is not None
    lines.append(child.stdout.readline())
    assert [line.split(":")[0] for line in lines] == ["anna", "ben"]
    for line, name in zip(lines, ("anna", "ben"), strict=True):
        with _client(line) as client:
            assert client.get("/api/label/state").json()["person"] == name
            assert client.post("/api/label/label", json={"cells": [[0, 3, 3]], "number": 1}).json()["changed"] == 1
    _stopped(child)
    tokens = {line.strip().split("token=")[1] for line in lines}
    child, lines = _started(tmp_path, *given)
    assert child.stdout is not None
    assert {line.strip().split("token=")[1] for line in (lines[0], child.stdout.readline())} == {
        t.strip() for t in tokens
    }
    _stopped(child)
    assert len(Project(tmp_path / "scene.labels").store.labels().popitem()[1]) == 2
    assert "--people names those" in run("serve", "--people", "anna", code=1).stderr
