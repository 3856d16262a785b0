"""Child processes that decode uploads, so that a crafted file can crash, hang or fill one of them and nothing else."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from mgcap.serve.refusals import Refusal
from mgcap.typing import Array

#: Children, and what each may take beyond its start.
CHILDREN, MEGABYTES = 2, 1200
#: An image of more pixels waits until others have been answered, see :class:`mgcap.serve.budget.Budget`.
AT_ONCE = 1_000_000


class LargeImageError(Exception):
    """An image that is not decoded before its pixels are accounted for."""

    def __init__(self, pixels: int) -> None:
        super().__init__(pixels)
        self.pixels = pixels


class _Child:
    """One process; it is started when it is first needed, and again after it was lost."""

    def __init__(self, megabytes: int) -> None:
        self.megabytes = megabytes
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> subprocess.Popen[bytes]:
        if self.process is None or self.process.poll() is not None:
            command = [sys.executable, "-m", "mgcap.serve.decoder", str(self.megabytes)]
            quiet = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "GDAL_CACHEMAX": "64"}
            quiet.pop("MGCAP_TOKEN", None)  # none of its business
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=quiet
            )
        return self.process

    def ask(self, job: dict[str, Any], seconds: float) -> tuple[dict[str, Any], Array | None]:
        process = self.start()
        assert process.stdin is not None and process.stdout is not None
        late = threading.Event()

        def stop() -> None:
            late.set()
            process.kill()

        watch = threading.Timer(seconds, stop)
        watch.start()
        try:
            process.stdin.write(json.dumps(job).encode() + b"\n")
            process.stdin.flush()
            line = process.stdout.readline()
            if not line.endswith(b"\n"):
                raise EOFError
            header = json.loads(line)
            return header, _pixels(process.stdout, header) if "shape" in header else None
        except (OSError, EOFError, ValueError):
            self.stop()
            reason = f"it takes more than {seconds:g} s" if late.is_set() else "its decoder crashed"
            raise Refusal(400, f"the file cannot be read: {reason}") from None
        finally:
            watch.cancel()

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.process = None


def _pixels(stream: IO[bytes], header: dict[str, Any]) -> Array:
    array = np.empty(header["shape"], header["dtype"])
    view = array.reshape(-1).view(np.uint8).data
    done = 0
    while done < len(view):
        count = stream.readinto(view[done:])  # type: ignore[attr-defined]
        if not count:
            raise EOFError
        done += count
    return array


class Decoders:
    """A few children that decode in turn; safe to be used by several threads.

    Args:
        children: How many.
        megabytes: That each may take beyond its start.
    """

    def __init__(self, children: int = CHILDREN, megabytes: int = MEGABYTES) -> None:
        self._all = [_Child(megabytes) for _ in range(children)]
        self._idle: queue.LifoQueue[_Child] = queue.LifoQueue()
        for child in self._all:
            child.start()
            self._idle.put(child)

    def image(self, path: Path, form: str, max_pixels: int, seconds: float, accounted: bool = False) -> Array:
        """Pixels ``[H, W, 3]``: bytes, or float32 in [0, 1] where the file has more depth.

        Args:
            path: The file.
            form: Pillow's name of its format.
            max_pixels: More are refused.
            seconds: It may take.
            accounted: Whether there is room for many pixels; a large image is a :class:`LargeImageError` otherwise.
        """
        at_once = max_pixels if accounted else min(AT_ONCE, max_pixels)
        job = {"kind": "image", "path": str(path), "format": form, "max_pixels": max_pixels, "at_once": at_once}
        header, pixels = self._ask(job, seconds)
        if pixels is None:
            raise LargeImageError(int(header["pixels"]))
        return pixels

    def raster(
        self, path: Path, target: Path, bands: Sequence[int] | None, max_pixels: int, seconds: float
    ) -> list[str]:
        """Write a plain copy of a raster and say what was assumed of it, see :func:`mgcap.geo.plain.copy_plain`."""
        job = {"kind": "raster", "path": str(path), "target": str(target), "bands": bands, "max_pixels": max_pixels}
        notes: list[str] = self._ask(job, seconds)[0]["notes"]
        return notes

    def _ask(self, job: dict[str, Any], seconds: float) -> tuple[dict[str, Any], Array | None]:
        child = self._idle.get()
        try:
            header, pixels = child.ask(job, seconds)
        finally:
            self._idle.put(child)
        if "error" in header:
            sentence = str(header["error"]).replace(f"{job['path']} ", "the file ").replace(job["path"], "the file")
            raise Refusal(int(header["status"]), sentence)
        return header, pixels

    def close(self) -> None:
        """End all children."""
        for child in self._all:
            child.stop()
