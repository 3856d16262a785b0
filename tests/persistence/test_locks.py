from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from mgcap.persistence.locks import claimed


def test_a_lock_is_held_by_one_at_a_time(tmp_path: Path) -> None:
    with claimed(tmp_path / "lock") as first, claimed(tmp_path / "lock") as second:
        assert first and not second
    with claimed(tmp_path / "lock") as again:
        assert again
    assert not list(tmp_path.iterdir())


def test_where_nothing_can_be_written_nobody_waits(tmp_path: Path) -> None:
    with claimed(tmp_path / "none" / "lock") as ours:
        assert ours


def test_too_many_open_files_are_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: Any) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(OSError, match="Too many open files"), claimed(tmp_path / "lock"):
        pass
