"""Mutated files against everything that reads files: ``make fuzz MINUTES=10``.

Each target runs in a process of its own with limits on memory and time. The bytes that made it fail, or crash, are
shrunk by hypothesis and kept in ``tests/attacks/corpus``, where the tests try them ever after.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

CORPUS = Path(__file__).parent / "corpus"
#: Seconds for one example, and gigabytes beyond what the process has at its start.
SECONDS, GIGABYTES = 20, 3
#: Examples between two looks at the clock.
TOGETHER = 200
INTERESTING = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF)


def seeds(target: str) -> list[bytes]:
    """Good files to begin with, and what was found before."""
    from tests.attacks import targets
    from tests.attacks.craft import good_rasters
    from tests.data.files import good_files

    kept = [path.read_bytes() for path in sorted(CORPUS.glob(f"{target}-*"))]
    if target == "bundle":
        return [targets.good_bundle(), *kept]
    if target == "chunk":
        return [targets.good_chunk(), *kept]
    if target == "request":
        return [targets.good_request(), *kept]
    with tempfile.TemporaryDirectory() as name:
        files = good_files(Path(name)) if target == "image" else good_rasters(Path(name))
        return [path.read_bytes() for path in files] + kept


@st.composite
def mutated(draw: Any, good: list[bytes]) -> bytes:
    """A good file with some places changed, most of them near its start, where headers are."""
    data = bytearray(draw(st.sampled_from(good)))
    for _ in range(draw(st.integers(1, 8))):
        reach = len(data) if draw(st.booleans()) else min(len(data), 600)
        place = draw(st.integers(0, max(0, reach - 1)))
        kind = draw(st.sampled_from(("bit", "byte", "number", "cut", "double", "end")))
        if kind == "bit" and data:
            data[place] ^= 1 << draw(st.integers(0, 7))
        elif kind == "byte" and data:
            data[place] = draw(st.integers(0, 255))
        elif kind == "number":
            width = draw(st.sampled_from((2, 4, 8)))
            value = draw(st.sampled_from(INTERESTING)) % (1 << (8 * width))
            data[place : place + width] = value.to_bytes(width, draw(st.sampled_from(("little", "big"))))
        elif kind == "cut":
            del data[place : place + draw(st.integers(1, 64))]
        elif kind == "double":
            data[place:place] = data[place : place + draw(st.integers(1, 64))]
        elif kind == "end":
            del data[place:]
    return bytes(data)


def _limit() -> None:
    import resource

    pages = int(Path("/proc/self/statm").read_text().split()[0])
    wanted = pages * resource.getpagesize() + GIGABYTES * 1_000_000_000
    resource.setrlimit(resource.RLIMIT_AS, (wanted, wanted))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


class TooSlowError(BaseException):
    """An example that takes too long; no decoder can swallow it."""


def _alarm(number: int, frame: Any) -> None:
    raise TooSlowError


def keep(target: str, data: bytes) -> Path:
    """Put bytes into the corpus."""
    path = CORPUS / f"{target}-{hashlib.sha256(data).hexdigest()[:12]}"
    path.write_bytes(data)
    return path


def run_child(target: str, seconds: float, current: Path) -> int:
    """Try examples until the time is over; returns how many failures were found."""
    from tests.attacks.targets import TARGETS

    good, work = seeds(target), TARGETS[target]
    for data in good:
        work(data)
    _limit()
    signal.signal(signal.SIGALRM, _alarm)
    end, tried, failures, last = time.monotonic() + seconds, 0, 0, b""

    def attempt(data: bytes) -> None:
        nonlocal tried, last
        tried += 1
        current.write_bytes(data)
        signal.alarm(SECONDS)
        try:
            work(data)
        except BaseException:
            last = data
            raise
        finally:
            signal.alarm(0)

    while time.monotonic() < end:
        quick = settings(
            max_examples=TOGETHER, deadline=None, database=None, phases=(Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        try:
            seed(random.getrandbits(64))(quick(given(mutated(good))(attempt)))()
        except (Exception, TooSlowError) as error:
            failures += 1
            print(f"{target}: {type(error).__name__}: {error} ({keep(target, last)})", flush=True)
            if failures >= 10:
                break
    print(f"{target}: {tried} examples, {failures} failures", flush=True)
    return failures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--targets", default="image,raster,bundle,chunk,request")
    parser.add_argument("--child", nargs=3, metavar=("TARGET", "SECONDS", "FILE"))
    options = parser.parse_args()
    if options.child:
        target, seconds, current = options.child
        return min(1, run_child(target, float(seconds), Path(current)))
    CORPUS.mkdir(exist_ok=True)
    names = options.targets.split(",")
    found = 0
    with tempfile.TemporaryDirectory() as folder:
        os.environ["MGCAP_HOME"] = folder
        for target in names:
            current = Path(folder) / "current"
            seconds = str(60 * options.minutes / len(names))
            command = [sys.executable, "-m", "tests.attacks.fuzz", "--child", target, seconds, str(current)]
            code = subprocess.run(command, check=False).returncode
            if code < 0:
                print(f"{target}: signal {-code} ({keep(target, current.read_bytes())})")
            found += code != 0
    return min(1, found)


if __name__ == "__main__":
    sys.exit(main())
