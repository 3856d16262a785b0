"""The child process that opens what strangers send: ``python -m mgcap.serve.decoder MEGABYTES``.

It takes one job per line of standard input as JSON, and answers each with a line of JSON, followed by the pixels if
there are any. It has little memory, loads no model, and may be killed at any time: a crash costs one request.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from pathlib import Path
from typing import IO, Any

import numpy as np
import tifffile
from PIL import Image, UnidentifiedImageError

from mgcap.data.decoding import read_rgb
from mgcap.errors import MgcapError, UntrustedRasterError

Answer = tuple[dict[str, Any], np.ndarray[Any, Any] | None]


def limit_memory(megabytes: int) -> None:
    """Limit the memory that this process may take beyond what it has now, and write no core; where the system can."""
    try:
        import resource
    except ImportError:  # Windows
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        wanted = now + megabytes * 1_000_000
        resource.setrlimit(resource.RLIMIT_AS, (wanted if hard < 0 else min(wanted, hard), hard))
    except (OSError, ValueError):  # macOS has neither
        return


def image_size(path: Path, form: str) -> tuple[int, int]:
    """Width and height by the header of a file of this format."""
    warnings.simplefilter("ignore")
    Image.MAX_IMAGE_PIXELS = None  # the size is all that is asked for
    try:
        with Image.open(path, formats=[form]) as image:
            return image.size
    except UnidentifiedImageError:
        if form != "TIFF":
            raise
    with tifffile.TiffFile(path) as file:
        page: Any = file.pages[0]
        return int(page.imagewidth), int(page.imagelength)


def answer(job: dict[str, Any]) -> Answer:
    """Do one job: the pixels of an image, or a plain copy of a raster."""
    path = Path(job["path"])
    if job["kind"] == "raster":
        from mgcap.geo.plain import copy_plain

        return {"notes": copy_plain(path, Path(job["target"]), job["bands"], job["max_pixels"])}, None
    width, height = image_size(path, job["format"])
    if width * height > job["max_pixels"]:
        sentence = f"the image is {width} x {height} pixels; {job['max_pixels'] / 1e6:g} million are allowed"
        return {"error": sentence, "status": 413}, None
    if width * height > job["at_once"]:
        return {"pixels": width * height}, None
    pixels = np.ascontiguousarray(read_rgb(path, job["max_pixels"]))
    if pixels.dtype != np.uint8 and width * height > job["max_pixels"] // 2:  # they take four times as much memory
        sentence = f"the image is {width} x {height} pixels of more than 8 bits; {job['max_pixels'] / 2e6:g} million"
        return {"error": f"{sentence} are allowed", "status": 413}, None
    return {"shape": pixels.shape, "dtype": pixels.dtype.name}, pixels


def guarded_answer(job: dict[str, Any]) -> Answer:
    """Like :func:`answer`, with errors as sentences; what a decoder raises beyond ours is damage."""
    try:
        return answer(job)
    except MemoryError:
        return {"error": "the file needs too much memory", "status": 413}, None
    except UntrustedRasterError as error:
        return {"error": error.args[0], "status": 400}, None
    except MgcapError as error:
        return {"error": str(error), "status": 400}, None
    except Exception as error:
        return {"error": f"the file cannot be read as an image ({type(error).__name__})", "status": 400}, None


def serve(jobs: IO[bytes], answers: IO[bytes]) -> None:
    """Answer jobs until there are no more."""
    for line in jobs:
        header, pixels = guarded_answer(json.loads(line))
        answers.write(json.dumps(header).encode() + b"\n")
        if pixels is not None:
            answers.write(pixels.data)
        answers.flush()
        del pixels


def main() -> None:
    """Run as a child of the service."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # a library that prints must not garble the answers
    limit_memory(int(sys.argv[1]))
    with answers:
        serve(sys.stdin.buffer, answers)


if __name__ == "__main__":
    main()
