"""The folder of a service for uploads and maps; what a killed service left behind is removed by the next."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
import time
from pathlib import Path

PREFIX = "mgcap-serve-"
_LOCK = ".lock"
#: A folder without a lock for this many seconds is not being made any more: its process was killed.
UNFINISHED_SECONDS = 3600

try:
    import fcntl as _locks
except ImportError:  # Windows: folders of killed services stay until someone removes them
    _locks = None  # type: ignore[assignment]


class WorkFolder:
    """A temporary folder that is locked while its process lives."""

    def __init__(self) -> None:
        remove_abandoned()
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX))
        new = self.path / f"{_LOCK}.new"
        self._handle = os.open(new, os.O_RDWR | os.O_CREAT, 0o600)
        if _locks:
            _locks.flock(self._handle, _locks.LOCK_EX)
            new.rename(self.path / _LOCK)  # others see it locked, or not at all

    def close(self) -> None:
        """Remove it."""
        shutil.rmtree(self.path, ignore_errors=True)
        with contextlib.suppress(OSError):
            os.close(self._handle)


def remove_abandoned() -> int:
    """Remove the folders of this user's services that have ended; returns how many."""
    if not _locks:
        return 0
    count = 0
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        try:
            state = folder.lstat()
            if not stat.S_ISDIR(state.st_mode) or state.st_uid != os.getuid():
                continue
            if not (folder / _LOCK).exists() and time.time() - state.st_mtime > UNFINISHED_SECONDS:
                shutil.rmtree(folder, ignore_errors=True)
                count += 1
                continue
            handle = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW)
        except OSError:  # it is being made, or another's
            continue
        try:
            _locks.flock(handle, _locks.LOCK_EX | _locks.LOCK_NB)
        except OSError:  # it is in use
            continue
        else:
            shutil.rmtree(folder, ignore_errors=True)
            count += 1
        finally:
            os.close(handle)
    return count
