"""What hostile clients do to others: half-open connections, trickling bodies, large images; run it beside nothing else.

python benchmarks/hostile.py --files 256 --half-open 1500 --large 8

It starts a service of its own with a limit on open files, holds connections that never finish their request, and
asks for /health and for answers meanwhile; then it sends large PNGs all at once and watches the memory of the service
and of its decoders.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cv2
import httpx
import numpy as np
from PIL import Image

parser = argparse.ArgumentParser()
parser.add_argument("--files", type=int, default=256, help="Files and connections that the service may have open.")
parser.add_argument("--half-open", type=int, default=1500)
parser.add_argument("--large", type=int, default=8, help="PNGs of 25 megapixels at once.")
parser.add_argument("--bits", type=int, choices=(8, 16), default=8, help="Bits of a number in the large ones.")
parser.add_argument("--path", default="/api/predict", help="What the large ones ask for.")
options = parser.parse_args()


def family(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children")
    return [pid, *(own for child in children.read_text().split() for own in family(int(child)))]


def memory(pid: int) -> float:
    """Gigabytes of a process and its children."""
    total = 0
    with contextlib.suppress(OSError):
        for own in family(pid):
            status = Path(f"/proc/{own}/status").read_text()
            total += int(status.partition("VmRSS:")[2].split()[0])
    return total / 1e6


def main() -> None:
    command = f"ulimit -n {options.files}; exec {sys.executable} -m mgcap serve --port 0 --no-token"
    with subprocess.Popen(["bash", "-c", command], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().split()[0]
        try:
            half_open(url)
            large(url, process.pid)
        finally:
            process.terminate()


def half_open(url: str) -> None:
    port = int(url.rsplit(":", 1)[1])
    held: list[socket.socket] = []
    waits, codes = [], Counter[int]()
    small = io.BytesIO()
    Image.fromarray(np.zeros((256, 256, 3), np.uint8)).save(small, "JPEG")
    body = b"POST /api/predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 90000\r\n\r\n"
    for number in range(options.half_open):
        own = socket.create_connection(("127.0.0.1", port), timeout=10)
        held.append(own)
        with contextlib.suppress(OSError):
            own.sendall((b"", b"GET / HTTP/1.1\r\nHost:", body)[number % 3])
        if number % 50 == 49:
            began = time.perf_counter()
            httpx.get(f"{url}/health", timeout=30).raise_for_status()
            waits.append(time.perf_counter() - began)
            if number % 250 == 249:
                codes[httpx.post(f"{url}/api/predict", files={"file": small.getvalue()}, timeout=90).status_code] += 1
    for own in held:
        own.close()
    print(
        f"{options.half_open} half-open connections, {options.files} files: health check median "
        f"{1000 * np.median(waits):.0f} ms, largest {1000 * max(waits):.0f} ms; predictions {dict(codes)}"
    )


def large(url: str, pid: int) -> None:
    rng = np.random.default_rng(0)
    kind = np.uint8 if options.bits == 8 else np.uint16
    pixels = np.kron(rng.integers(0, 1 << options.bits, (500, 500, 3), kind), np.ones((10, 10, 1), kind))
    encoded = cv2.imencode(".png", pixels)[1].tobytes()
    peak, before, stop = 0.0, memory(pid), threading.Event()

    def watch() -> None:
        nonlocal peak
        while not stop.is_set():
            peak = max(peak, memory(pid))
            time.sleep(0.005)

    watcher = threading.Thread(target=watch)
    watcher.start()
    with ThreadPoolExecutor(options.large) as pool:
        replies = pool.map(
            lambda _: httpx.post(url + options.path, files={"file": encoded}, timeout=300).status_code,
            range(options.large),
        )
        codes = Counter(replies)
    stop.set()
    watcher.join()
    print(
        f"{options.large} PNGs of 25 megapixels and {options.bits} bits at once: {dict(codes)}; memory {before:.2f} GB "
        f"before, {peak:.2f} GB at most"
    )


if __name__ == "__main__":
    main()
