from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mgcap.classifier import SceneClassifier
from mgcap.data.folders import open_folder
from mgcap.serve.app import create_app
from mgcap.serve.connections import Server, server_config
from mgcap.serve.service import load_models
from mgcap.serve.settings import Settings
from tests.conftest import TINY

Start = Callable[..., str]


@pytest.fixture(scope="session")
def model_files(scenes: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two small models."""
    folder = open_folder(scenes)
    root = tmp_path_factory.mktemp("served")
    paths = [root / "first.mgcap", root / "second.mgcap"]
    for path, rotations in zip(paths, (4, 2), strict=True):
        config = {**TINY, "rotations": rotations, "resolution": 0.5, "cache": False}
        SceneClassifier(**config).fit(folder.paths, folder.labels).save(path)
    return paths


@pytest.fixture
def start(model_files: list[Path]) -> Iterator[Start]:
    """Starts a service on a free port and gives its address; all end with the test."""
    servers: list[tuple[Server, threading.Thread]] = []

    def run(**settings: object) -> str:
        app = create_app(load_models(model_files, engine="torch"), Settings.model_validate(settings))
        server = Server(server_config(app, "127.0.0.1", 0, 5, app.state.service.count_bad))
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        servers.append((server, thread))
        while not server.started:
            time.sleep(0.01)
        return f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"

    yield run
    for server, thread in servers:
        server.should_exit = True
        thread.join(20)
