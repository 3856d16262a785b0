from __future__ import annotations

import csv
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.cli.run import SMALL, run, sentence

TUNE = ["--finetune", "--tune", "epochs=2", "--tune", "batch=6", "--tune", "head_epochs=2"]


def test_finetuning_leaves_model_report_and_logs(scenes: Path, tmp_path: Path) -> None:
    out = tmp_path / "m.mgcap"
    weights = tmp_path / "weights.csv"
    names = sorted(folder.name for folder in scenes.iterdir())
    weights.write_text("class,weight\n" + "".join(f"{name},1.5\n" for name in names))
    values = ["label_smoothing=0.1", f"class_weights={weights}", "vertical_flip=true", "validation=0.2", "ema=0.9"]
    values += ["schedule=cosine", "optimiser=adamw", "crop=0.9", "patience=5"]
    more = [part for value in values for part in ("--tune", value)]
    done = run("train", scenes, "--out", out, "--train-ratio", "0.7", *SMALL, *TUNE, *more)
    assert "epoch 2: loss" in done.stderr and "held-out images" in done.stderr
    logs = tmp_path / "m.training"
    assert {p.name for p in logs.iterdir()} == {"steps.csv", "epochs.csv", "loss.png", "accuracy.png", "tensorboard"}
    assert len(list(csv.DictReader((logs / "epochs.csv").open()))) == 2
    page = (tmp_path / "m.html").read_text()
    assert "confidence interval" in page and "://" not in page.replace("http://www.w3.org", "")
    run("predict", next(scenes.rglob("*.png")), "--model", out)
    run("train", scenes, "--out", out, *SMALL, *TUNE)  # a second run keeps the first one's model and logs
    assert (tmp_path / "m.previous.mgcap").exists() and (tmp_path / "m.training.previous" / "steps.csv").exists()


def test_a_killed_finetuning_is_resumed(scenes: Path, tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole.mgcap", tmp_path / "killed.mgcap"
    options = [*SMALL, *TUNE, "--tune", "checkpoint_minutes=0", "--tune", "epochs=16"]
    run("train", scenes, "--out", whole, *options)
    process = subprocess.Popen(
        [sys.executable, "-m", "mgcap", "train", scenes, "--out", killed, *options], stderr=subprocess.PIPE, text=True
    )
    steps = tmp_path / "killed.training" / "steps.csv"
    while process.poll() is None and (not steps.exists() or steps.stat().st_size < 500):
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL and not killed.exists()
    assert "add --resume" in sentence("train", scenes, "--out", killed, *options)
    done = run("train", scenes, "--out", killed, *options, "--resume")
    assert "resumed after epoch" in done.stderr
    losses = [
        [row["loss"] for row in csv.DictReader((tmp_path / f"{name}.training" / "steps.csv").open())]
        for name in ("whole", "killed")
    ]
    assert len(losses[0]) == 64 and [float(a) for a in losses[0]] == [float(b) for b in losses[1]]
    assert not (tmp_path / "killed.training" / "checkpoint.safetensors").exists()


def test_an_interrupted_finetuning_says_how_to_go_on(scenes: Path, tmp_path: Path) -> None:
    out = tmp_path / "m.mgcap"
    process = subprocess.Popen(
        [sys.executable, "-m", "mgcap", "train", scenes, "--out", out, *SMALL, *TUNE, "--tune", "epochs=1000"],
        stderr=subprocess.PIPE,
        text=True,
    )
    while process.poll() is None and not (tmp_path / "m.training" / "epochs.csv").exists():
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    _, words = process.communicate(timeout=60)
    assert process.returncode == 130 and "--resume" in words and "Traceback" not in words
    assert (tmp_path / "m.training" / "checkpoint.safetensors").exists()


def test_bad_options(scenes: Path, tmp_path: Path) -> None:
    out = ["--out", tmp_path / "m.mgcap", *SMALL]
    assert "--tune needs --finetune" in sentence("train", scenes, *out, "--tune", "epochs=3")
    assert "--resume needs --finetune" in sentence("train", scenes, *out, "--resume")
    assert "did you mean 'adam'" in sentence("train", scenes, *out, *TUNE, "--tune", "optimiser=adan")
    assert "did you mean 'epochs'" in sentence("train", scenes, *out, *TUNE, "--tune", "epoch=3")
    assert "needs a validation part" in sentence("train", scenes, *out, *TUNE, "--tune", "patience=2")
    assert "'shade' is not an option" in sentence("train", scenes, *out, *TUNE, "--tune", "shade=red")
    assert "colour: Input should be a valid number" in sentence("train", scenes, *out, *TUNE, "--tune", "colour=red")
    assert "'sgd', 'adam' or 'adamw'" in sentence("train", scenes, *out, *TUNE, "--tune", "optimiser=lion")
    some = ["--tune", "granularities_a_step=1", "--set", "share_granularities=false"]
    assert "needs share_granularities=True" in sentence("train", scenes, *out, *TUNE, *some)
    assert "no layer 'conv9'" in sentence("train", scenes, *out, *TUNE, "--tune", "train_from=conv9")
    weights = ["--tune", f"class_weights={tmp_path / 'w.csv'}"]
    assert "cannot be read" in sentence("train", scenes, *out, *TUNE, *weights)
    (tmp_path / "w.csv").write_text("a,b\n1,2\n")
    assert "columns class and weight" in sentence("train", scenes, *out, *TUNE, *weights)
    (tmp_path / "w.csv").write_text("class,weight\nforest,2\n")
    assert "class weights" in sentence("train", scenes, *out, *TUNE, *weights)
    (tmp_path / "m.training").mkdir()
    (tmp_path / "m.training" / "checkpoint.safetensors").write_bytes(b"broken")
    assert "damaged" in sentence("train", scenes, *out, *TUNE, "--resume")


def test_a_damaged_image_is_skipped(scenes: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(scenes, data)
    victim = next(data.rglob("*2.png"))
    victim.write_bytes(b"")
    done = run("train", data, "--out", tmp_path / "m.mgcap", *SMALL, *TUNE)
    assert "skipped" in done.stderr and victim.name in done.stderr
