from __future__ import annotations

import multiprocessing
import time
from pathlib import Path

from mgcap.baselines.turns import POLL_SECONDS, Turn, give_turns


def _work(turn: Turn, log: Path, ask: bool) -> None:
    """Write the time again and again; one who asks writes when it was alone."""
    end = time.monotonic() + 4
    while time.monotonic() < end:
        if ask:
            time.sleep(0.5)
            with turn.alone():
                begin = time.time()
                time.sleep(0.6)
                log.write_text(f"{begin} {time.time()}")
            return
        with log.open("a") as file:
            file.write(f"{time.time()}\n")
        time.sleep(0.02)


def _die(turn: Turn, log: Path, ask: bool) -> None:
    turn.asked.set()
    turn.granted.wait()
    raise SystemExit(3)


def _run(tmp_path: Path, target: object) -> tuple[list[float], Path]:
    context = multiprocessing.get_context("spawn")
    running = {}
    for name, own, ask in (("busy", _work, False), ("asks", target, True)):
        turn = Turn.of(context)
        process = context.Process(target=own, args=(turn, tmp_path / name, ask))  # type: ignore[arg-type]
        process.start()
        running[name] = process, turn
    deadline = time.monotonic() + 60
    while any(process.is_alive() for process, _ in running.values()):
        assert time.monotonic() < deadline
        time.sleep(POLL_SECONDS)
        give_turns(running)
    return [float(line) for line in (tmp_path / "busy").read_text().split()], tmp_path / "asks"


def test_who_asks_is_alone(tmp_path: Path) -> None:
    times, log = _run(tmp_path, _work)
    begin, end = map(float, log.read_text().split())
    assert not [t for t in times if begin + 0.05 < t < end] and times[-1] > end


def test_who_dies_while_it_is_alone_stops_nobody(tmp_path: Path) -> None:
    times, _ = _run(tmp_path, _die)
    assert times[-1] - times[0] > 3
