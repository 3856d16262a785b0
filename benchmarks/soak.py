"""Kills at random moments of extraction, fine-tuning and mapping; what is finished afterwards must be the same bits.

python benchmarks/soak.py --kills 20 --csv benchmarks/results/soak.csv

Each job is run once undisturbed. Then the same command is started and killed (SIGKILL) again and again, half of the
times at a random moment, half of the times just when a file is being written, and at last run to its end. Kills that
left a temporary file behind landed inside a write.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

parser = argparse.ArgumentParser()
parser.add_argument("--kills", type=int, default=20, help="Of each job.")
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--jobs", default="extraction,finetune,map")
parser.add_argument("--csv", type=Path)
options = parser.parse_args()

SMALL = ["--backbone", "alexnet", "--weights", "random", "--engine", "torch"]


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "mgcap", *map(str, words)]


def tensors(path: Path) -> str:
    """A hash of the numbers of a model, which carries the time of its making besides."""
    found = load_file(path)
    return hashlib.sha256(b"".join(name.encode() + found[name].tobytes() for name in sorted(found))).hexdigest()


def file_hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def writing(folder: Path) -> list[Path]:
    """Files that are being written: they have a name of their own until they are whole."""
    try:
        return [path for path in folder.rglob(".*.*") if path.is_file()]
    except OSError:
        return []


def soak(name: str, start: list[str], again: list[str], folder: Path, result: Callable[[], str]) -> dict[str, object]:
    """Run a job undisturbed and with kills, and compare."""
    environment = {**os.environ, "MGCAP_HOME": str(folder / "home"), "MGCAP_THREADS": "2"}

    def run(words: list[str]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            words, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    began = time.monotonic()
    if run(start).wait() != 0:
        raise SystemExit(f"{name}: the undisturbed run failed")
    seconds, expected = time.monotonic() - began, result()
    rng, inside, finished, fresh = random.Random(options.seed), 0, 0, True
    for number in range(options.kills):
        if fresh:  # there is nothing to resume, or it was done
            shutil.rmtree(folder)
            folder.mkdir()
        process = run(start if fresh else again)
        end = time.monotonic() + rng.uniform(0.1, 1.1 * seconds)
        before = set(writing(folder))
        while process.poll() is None and time.monotonic() < end:
            if number % 2 and set(writing(folder)) - before and rng.random() < 0.2:
                break
            time.sleep(0.001)
        fresh = process.poll() is not None
        finished += fresh
        process.kill()
        process.wait()
        inside += bool(set(writing(folder)) - before)
    if run(start if fresh else again).wait() != 0:
        raise SystemExit(f"{name}: the run after the kills failed")
    same = result() == expected
    return {
        "job": name,
        "kills": options.kills,
        "inside_a_write": inside,
        "finished_before": finished,
        "same_bits": same,
    }


def main() -> int:
    rows = []
    with tempfile.TemporaryDirectory() as root:
        base = Path(root)
        scenes = base / "scenes"
        subprocess.run(command("datasets", "synthetic", scenes, "--per-class", 12, "--size", 128), check=True)
        model = base / "tiny.mgcap"
        train = [scenes, *SMALL, "--regularisation", 1, "--set", "channels=32"]
        subprocess.run(command("train", *train, "--rotations", 1, "--resolution", 0.5, "--out", model), check=True)
        raster = base / "scene.tif"
        _write_raster(raster)
        tune = [
            "--finetune",
            "--tune",
            "checkpoint_minutes=0",
            "--tune",
            "epochs=20",
            "--tune",
            "head=exact",
            "--rotations",
            1,
            "--granularities",
            "1.0",
        ]
        jobs = {
            "extraction": (["train", *train, "--out", "m.mgcap"], [], "m.mgcap", tensors),
            "finetune": (["train", *train, *tune, "--out", "m.mgcap"], ["--resume"], "m.mgcap", tensors),
            "map": (["map", raster, "--model", model, "--overlap", 0.5, "--out", "map.gpkg"], [], "map.tif", file_hash),
        }
        for name in options.jobs.split(","):
            words, more, made, look = jobs[name]
            folder = base / name
            folder.mkdir()
            row = soak(name, command(*words), command(*words, *more), folder, lambda: look(folder / made))  # noqa: B023
            print(row, flush=True)
            rows.append(row)
    if options.csv:
        with options.csv.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    return 0 if all(row["same_bits"] for row in rows) else 1


def _write_raster(path: Path) -> None:
    import rasterio
    from rasterio.transform import from_origin

    rng = np.random.default_rng(0)
    pixels = np.kron(rng.integers(0, 256, (3, 128, 128), np.uint8), np.ones((1, 16, 16), np.uint8))
    place = {"crs": "EPSG:25832", "transform": from_origin(500_000, 5_600_000, 0.5, 0.5)}
    side = pixels.shape[1]
    with rasterio.open(path, "w", driver="GTiff", count=3, height=side, width=side, dtype="uint8", **place) as dataset:
        dataset.write(pixels)


if __name__ == "__main__":
    sys.exit(main())
