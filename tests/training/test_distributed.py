"""Two processes on this machine, talking by gloo, started as a user starts them."""

from __future__ import annotations

import csv
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from mgcap import SceneClassifier
from mgcap.training import distributed
from tests.cli.run import SMALL, run

VALUES = ("epochs=2", "batch=5", "head_epochs=3", "lr=0.01", "validation=0.2")
TUNE = ["--finetune", *(part for value in VALUES for part in ("--tune", value))]


def _launch(*arguments: object, processes: int = 2) -> list[str]:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(processes)]
    port = 20000 + (os.getpid() * 7 + int(time.time())) % 20000
    return [*launcher, "--master-port", str(port), "-m", "mgcap", *map(str, arguments)]


def _losses(folder: Path) -> list[float]:
    return [float(row["loss"]) for row in csv.DictReader((folder / "steps.csv").open())]


def test_two_processes_walk_the_way_of_one(scenes: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(scenes, data)
    victim = next(data.rglob("*3.png"))
    victim.write_bytes(victim.read_bytes()[:100])
    options = [*SMALL, *TUNE, "--train-ratio", "0.7"]
    run("train", data, "--out", tmp_path / "one" / "m.mgcap", *options)
    done = subprocess.run(
        _launch("train", data, "--out", tmp_path / "two" / "m.mgcap", *options), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("24 images of 4 classes") == 1  # only the first process speaks
    one, two = (_losses(tmp_path / name / "m.training") for name in ("one", "two"))
    assert len(one) >= 6 and two == pytest.approx(one, rel=1e-4)
    models = [SceneClassifier.load(tmp_path / name / "m.mgcap", engine="torch").model_ for name in ("one", "two")]
    for p, q in zip(models[0].parameters(), models[1].parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-3, atol=1e-5)
    assert [p.name for p in (tmp_path / "two").iterdir() if "tmp" in p.name] == []


def test_a_dead_process_ends_the_run_with_a_sentence_and_a_checkpoint(scenes: Path, tmp_path: Path) -> None:
    out = tmp_path / "m.mgcap"
    options = ["train", scenes, "--out", out, *SMALL, *TUNE, "--tune", "checkpoint_minutes=0"]
    options[options.index("epochs=2")] = "epochs=400"
    process = subprocess.Popen(_launch(*options), stderr=subprocess.PIPE, text=True)
    checkpoint = tmp_path / "m.training" / "checkpoint.safetensors"
    steps = checkpoint.with_name("steps.csv")
    for _ in range(600):
        if steps.exists() and steps.stat().st_size > 300:  # it is written after the checkpoint
            break
        time.sleep(0.1)
    children = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True).stdout.split()
    assert len(children) >= 2
    os.kill(int(children[-1]), signal.SIGKILL)
    _, words = process.communicate(timeout=120)
    assert process.returncode != 0
    assert "--resume" in words and str(checkpoint) in words, words
    steps = len(_losses(checkpoint.parent))
    assert steps > 1
    options[options.index("epochs=400")] = "epochs=1"
    done = run(*options, "--resume", code=1)  # one process, other options: refused, and nothing is lost
    assert "other options" in done.stderr and checkpoint.exists()


def test_one_process_needs_no_partner(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = torch.rand(3, 2)
    assert distributed.gather_rows(rows, [[0, 1, 2]], torch.empty) is rows
    assert distributed.own_part(range(5)) == range(5) and float(distributed.total(torch.ones(()))) == 1
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert list(distributed.own_part(range(5))) == [1, 3]


def test_several_processes_need_finetune(scenes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert "are for --finetune" in run("train", scenes, "--out", tmp_path / "m.mgcap", *SMALL, code=1).stderr
