"""The service as a process of its own, with many clients."""

from __future__ import annotations

import contextlib
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
    command = [
        sys.executable,
        "-m",
        "mgcap",
        "serve",
        "--port",
        str(port),
        "--queue",
        "40",
        "--engine",
        "torch",
        "--no-token",
    ]
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


def test_a_token_is_made_and_never_taken_from_the_command_line(model_files: list[Path]) -> None:
    from tests.cli.run import sentence

    assert "MGCAP_TOKEN or --token-file" in sentence("serve", "--token", "sesame-sesame")
    command = [
        sys.executable,
        "-m",
        "mgcap",
        "serve",
        "--port",
        "0",
        "--engine",
        "torch",
        "--model",
        str(model_files[0]),
    ]
    addresses = []
    for _ in range(2):
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
            assert process.stdout is not None
            addresses.append(process.stdout.readline().split()[0])
            url, _, token = addresses[-1].partition("/#token=")
            assert len(token) >= 32
            assert httpx.get(f"{url}/health").status_code == 200
            assert httpx.get(f"{url}/api/models").status_code == 401
            assert httpx.get(f"{url}/api/models", headers={"Authorization": f"Bearer {token}"}).status_code == 200
            listed = Path(f"/proc/{process.pid}/cmdline")
            assert not listed.exists() or token not in listed.read_text()
            process.terminate()
    assert addresses[0] != addresses[1]


def test_a_token_comes_from_a_file_or_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mgcap.cli.serve import _token
    from mgcap.errors import DataError

    monkeypatch.setenv("MGCAP_TOKEN", "out of three words")
    with pytest.raises(DataError, match="one word of 8"):
        _token(None)
    monkeypatch.setenv("MGCAP_TOKEN", "from-the-environment")
    assert _token(None) == "from-the-environment"
    (tmp_path / "token").write_text("from-a-file\n")
    assert _token(tmp_path / "token") == "from-a-file"


def test_half_open_connections_do_not_keep_others_out(model_files: list[Path]) -> None:
    """Three times as many against a service that may have 256 files open."""
    command = [
        "bash", "-c", f"ulimit -n 256; exec {sys.executable} -m mgcap serve --port 0 --engine torch --no-token "
        f"--model {model_files[0]}",
    ]  # fmt: skip
    held: list[socket.socket] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline().split()[0].rsplit(":", 1)[1])
        waits = []
        try:
            for number in range(750):
                own = socket.create_connection(("127.0.0.1", port), timeout=5)
                held.append(own)
                with contextlib.suppress(OSError):
                    own.sendall(b"GET / HTTP/1.1\r\nHost: loc" if number % 2 else b"")
                if number % 150 == 149:
                    began = time.perf_counter()
                    assert httpx.get(f"http://127.0.0.1:{port}/health", timeout=5).status_code == 200
                    waits.append(time.perf_counter() - began)
            for own in held:
                own.close()
            held = [_deaf(port) for _ in range(110)]
            for _ in range(5):
                time.sleep(0.3)
                began = time.perf_counter()
                assert httpx.get(f"http://127.0.0.1:{port}/health", timeout=5).status_code == 200
                waits.append(time.perf_counter() - began)
        finally:
            for own in held:
                own.close()
            process.terminate()
    assert max(waits) < 1.0


def _deaf(port: int) -> socket.socket:
    """A client that asks for much and reads none of it."""
    own = socket.socket()
    own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    own.settimeout(3)
    with contextlib.suppress(OSError):
        own.connect(("127.0.0.1", port))
        own.sendall(b"GET /static/page.js HTTP/1.1\r\nHost: localhost\r\n\r\n" * 1200)
    return own
