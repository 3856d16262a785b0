"""Running commands, in this process or as a user does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from typer.testing import CliRunner, Result

from mgcap.cli import app

#: Options that make training a matter of moments.
SMALL = [
    "--weights",
    "random",
    "--engine",
    "torch",
    "--backbone",
    "alexnet",
    "--rotations",
    "2",
    "--set",
    "channels=8",
    "--set",
    "size=64",
]


def run(*arguments: object, code: int = 0) -> Result:
    """Run a command in this process."""
    done = CliRunner().invoke(app, [str(a) for a in arguments])
    assert done.exit_code == code, (done.output, done.exception)
    assert done.exception is None or isinstance(done.exception, SystemExit)
    return done


def run_apart(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a command as a user does."""
    return subprocess.run([sys.executable, "-m", "mgcap", *map(str, arguments)], capture_output=True, text=True)


def sentence(*arguments: object) -> str:
    """The one line that a failing command prints."""
    done = run(*arguments, code=1)
    lines = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1, done.stderr
    return lines[0]


def empty(tmp_path: Path) -> Path:
    """An empty folder."""
    (tmp_path / "empty").mkdir(exist_ok=True)
    return tmp_path / "empty"
