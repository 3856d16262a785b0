"""The service as a process of its own, with many clients."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import pytest

from mgcap.data.folders import open_folder


@pytest.fixture
def served(model_files: list[Path]) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "mgcap", "serve", "--port", str(port), "--queue", "40", "--engine", "torch"]
    command += [part for file in model_files for part in ("--model", str(file))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        url = f"http://127.0.0.1:{port}"
        for _ in range(600):
            try:
                httpx.get(f"{url}/health")
                break
            except httpx.TransportError:
                time.sleep(0.1)
        yield url, process
        process.kill()


def test_fifty_clients_at_once(served: tuple[str, subprocess.Popen[str]], scenes: Path) -> None:
    url, _ = served
    image = open_folder(scenes).paths[0].read_bytes()
    waits: list[float] = []
    stop = threading.Event()

    def watch() -> None:
        with httpx.Client() as client:
            while not stop.is_set():
                began = time.perf_counter()
                assert client.get(f"{url}/health").status_code == 200
                waits.append(time.perf_counter() - began)
                time.sleep(0.02)

    with httpx.Client(limits=httpx.Limits(max_connections=60), timeout=60) as client:
        watcher = threading.Thread(target=watch)
        watcher.start()
        with ThreadPoolExecutor(50) as pool:
            replies = list(pool.map(lambda _: client.post(f"{url}/api/predict", files={"file": image}), range(200)))
        stop.set()
        watcher.join()
    codes = [reply.status_code for reply in replies]
    assert set(codes) <= {200, 503}
    assert codes.count(200) >= 40
    answers = [reply.json() for reply in replies if reply.status_code == 200]
    assert len({answer["class"] for answer in answers}) == 1
    assert np.ptp([answer["probability"] for answer in answers]) < 1e-4  # whatever they were batched with
    assert len(waits) > 5
    assert np.median(waits) < 0.2


def test_what_is_under_way_is_finished_after_sigterm(served: tuple[str, subprocess.Popen[str]], scenes: Path) -> None:
    url, process = served
    image = open_folder(scenes).paths[0].read_bytes()
    with ThreadPoolExecutor(12) as pool:
        asked = [pool.submit(httpx.post, f"{url}/api/explain", files={"file": image}, timeout=60) for _ in range(12)]
        time.sleep(0.4)
        process.send_signal(signal.SIGTERM)
        codes = []
        for answer in asked:
            try:
                codes.append(answer.result().status_code)
            except httpx.ConnectError:  # came after the door was shut
                codes.append(0)
    assert process.wait(30) == 0
    assert set(codes) <= {200, 0}
    assert 200 in codes


def test_others_may_not_listen_without_a_token() -> None:
    from tests.cli.run import sentence

    assert "give a --token" in sentence("serve", "--host", "0.0.0.0")
