"""Many clients at once: how many answers, of which kind, how fast, and how long the health check waits meanwhile.

mgcap serve --port 8000
python benchmarks/load.py http://127.0.0.1:8000 tile.jpg --clients 50 --requests 500
"""

from __future__ import annotations

import argparse
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np

parser = argparse.ArgumentParser()
parser.add_argument("url")
parser.add_argument("image", type=Path)
parser.add_argument("--clients", type=int, default=50)
parser.add_argument("--requests", type=int, default=500)
parser.add_argument("--path", default="/api/predict")
options = parser.parse_args()

content = options.image.read_bytes()
stop = threading.Event()
waits: list[float] = []


def watch() -> None:
    with httpx.Client() as client:
        while not stop.is_set():
            began = time.perf_counter()
            client.get(f"{options.url}/health").raise_for_status()
            waits.append(time.perf_counter() - began)
            time.sleep(0.05)


def ask(client: httpx.Client) -> tuple[int, float]:
    began = time.perf_counter()
    reply = client.post(options.url + options.path, files={"file": content})
    return reply.status_code, time.perf_counter() - began


watcher = threading.Thread(target=watch)
watcher.start()
began = time.perf_counter()
with (
    httpx.Client(limits=httpx.Limits(max_connections=options.clients), timeout=300) as client,
    ThreadPoolExecutor(options.clients) as pool,
):
    answers = list(pool.map(lambda _: ask(client), range(options.requests)))
seconds = time.perf_counter() - began
stop.set()
watcher.join()
times = [spent for code, spent in answers if code == 200]
print(
    f"{options.clients} clients, {options.requests} requests in {seconds:.1f} s ({len(times) / seconds:.1f} answers/s)"
)
print("answers:", dict(Counter(code for code, _ in answers)))
print(f"time of an answer: median {np.median(times):.2f} s, largest {max(times):.2f} s")
print(
    f"health check: median {1000 * np.median(waits):.0f} ms, largest {1000 * max(waits):.0f} ms ({len(waits)} checks)"
)
