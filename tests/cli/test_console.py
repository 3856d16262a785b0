from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.cli.run import run, run_apart


def test_help_has_an_example_everywhere() -> None:
    commands = ("", "train", "predict", "doctor", "demo", "datasets list", "datasets check", "datasets synthetic")
    for command in (*commands, "weights list", "weights fetch"):
        assert "Example: mgcap" in run(*command.split(), "--help").stdout
    assert re.match(r"mgcap \d+\.\d+", run("--version").stdout)


def test_in_a_process_of_its_own(scenes: Path, model: Path) -> None:
    done = run_apart("predict", next(scenes.rglob("*.png")), "--model", model)
    assert done.returncode == 0 and done.stdout.startswith("path,class,probability")
    done = run_apart("predict", "none.png", "--model", model)
    assert done.returncode == 1 and "there is no file none.png" in done.stdout and "Traceback" not in done.stderr


def test_help_does_not_wait_for_torch() -> None:
    code = "import sys, mgcap.cli; sys.exit('torch' in sys.modules or 'sklearn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    for arguments in (["--debug", "train", tmp_path / "none"], ["train", tmp_path / "none", "--debug"]):
        done = run_apart(*arguments)
        assert done.returncode == 1 and "Traceback" in done.stderr and "DataError" in done.stderr
