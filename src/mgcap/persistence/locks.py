"""Locks that vanish with the process that holds them, for processes that share a folder."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

try:
    import fcntl as _locks
except ImportError:  # Windows: two processes may do the same work twice, with the same outcome
    _locks = None  # type: ignore[assignment]


@contextlib.contextmanager
def claimed(path: Path) -> Iterator[bool]:
    """Whether nobody else holds the lock of this file; it is ours until the block ends or the process does."""
    if not _locks:
        yield True
        return
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise
        yield True  # a folder where nothing can be written
        return
    try:
        try:
            _locks.flock(handle, _locks.LOCK_EX | _locks.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        except OSError:  # a file system without locks
            yield True
            return
        yield True
        with contextlib.suppress(OSError):
            path.unlink()
    finally:
        os.close(handle)
