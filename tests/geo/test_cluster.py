from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from mgcap.classifier import SceneClassifier
from mgcap.errors import MgcapError
from mgcap.geo.cluster import cluster_workers
from mgcap.geo.mapping import map_raster


def test_two_workers_one_of_them_killed_give_the_same_bytes(
    write_raster: Any, picture: Any, model_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from distributed import get_client

    monkeypatch.setattr("mgcap.geo.plan.CHUNK", 1)
    raster = write_raster(picture)
    classifier = SceneClassifier.load(model_file, engine="torch")
    alone = map_raster(classifier, model_file, raster, tmp_path / "alone" / "map.gpkg")
    with cluster_workers("local:2") as workers:

        def killing(plan: Any, chunks: Any) -> Any:
            for count, answer in enumerate(workers(plan, chunks)):
                if count == 2:
                    pids = get_client().run(os.getpid)
                    os.kill(next(iter(pids.values())), signal.SIGKILL)
                    time.sleep(0.2)
                yield answer

        shared = map_raster(classifier, model_file, raster, tmp_path / "shared" / "map.gpkg", workers=killing)
    for one, other in zip(alone.files, shared.files, strict=True):
        assert one.read_bytes() == other.read_bytes(), one.name


@pytest.mark.parametrize(
    ("address", "words"), [("local:0", "from 1 to 256"), ("local:x", "from 1 to 256"), ("here", "takes local:N")]
)
def test_other_addresses_are_refused(address: str, words: str) -> None:
    with pytest.raises(MgcapError, match=words), cluster_workers(address):
        pass


def test_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mgcap.geo.cluster.CONNECT_SECONDS", 1)
    with pytest.raises(MgcapError, match="does not answer"), cluster_workers("tcp://127.0.0.1:9"):
        pass
