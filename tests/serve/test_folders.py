from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from mgcap.serve.folders import PREFIX, WorkFolder, remove_abandoned

KEEPS = """
import sys
from mgcap.serve.folders import WorkFolder
own = WorkFolder()
(own.path / "upload.tif").write_text("x")
print(own.path, flush=True)
sys.stdin.read()
"""


def test_what_a_killed_service_left_is_removed_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    with subprocess.Popen(
        [sys.executable, "-c", KEEPS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as own:
        assert own.stdout is not None
        left = Path(own.stdout.readline().strip())
        assert remove_abandoned() == 0  # its process lives
        own.kill()
        own.wait()
    assert (left / "upload.tif").is_file()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / ".lock").touch()
    (tmp_path / f"{PREFIX}link").symlink_to(elsewhere)  # of a stranger, perhaps
    following = WorkFolder()
    assert not left.exists()
    assert elsewhere.is_dir()
    assert following.path.is_dir()
    following.close()
    assert not following.path.exists()


def test_a_folder_that_was_never_locked_goes_after_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    old, new = tmp_path / f"{PREFIX}old", tmp_path / f"{PREFIX}new"
    for folder in (old, new):
        folder.mkdir()
    os.utime(old, (0, 0))
    assert remove_abandoned() == 1 and not old.exists() and new.exists()
