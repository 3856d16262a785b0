"""Datasets in zip archives, as people download them: unpacked once, into the cache, within bounds.

Only images are unpacked. An archive may come from anybody, so nothing in it may lie outside of its folder, and it may
not take more than there is. It is unpacked beside its place and renamed when it is whole.
"""

from __future__ import annotations

import errno
import shutil
import stat
import time
import zipfile
import zlib
from contextlib import nullcontext, suppress
from pathlib import Path, PurePosixPath
from typing import IO

from mgcap.data.decoding import is_image
from mgcap.errors import DataError
from mgcap.persistence.files import cache_dir, sha256_of
from mgcap.persistence.locks import claimed
from mgcap.runtime import Progress, silent

#: Files that an archive may have.
MAX_MEMBERS = 1_000_000
#: Bytes that its images may have together, unpacked.
MAX_BYTES = 100 << 30
#: An archive of more bytes is read with a word about it.
LARGE = 256 << 20
#: Bytes that are copied at once.
PIECE = 1 << 20
#: Bit of a member that is encrypted.
_ENCRYPTED = 1
#: Bit of a member whose name is in UTF-8.
_UTF8 = 0x800


def is_archive(path: Path) -> bool:
    """Whether a file's name says that it is a zip archive."""
    return path.suffix.lower() == ".zip"


def unpacked(path: Path, progress: Progress = silent) -> Path:
    """The folder with the images of an archive; what is in the cache already is not unpacked again.

    Args:
        path: The archive.
        progress: Where to report.

    Raises:
        DataError: With one sentence saying why it cannot be used.
    """
    large = path.stat().st_size > LARGE
    with progress(f"Reading {path.name}", None) if large else nullcontext():
        fingerprint = sha256_of(path)
    folder = cache_dir() / "archives"
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / fingerprint
    while not target.is_dir():
        lock = folder / f".{fingerprint}.lock"
        with claimed(lock) as ours:  # other processes of the same run wait for the first
            if ours and not target.is_dir():
                partial = folder / f".{fingerprint}.partial"
                shutil.rmtree(partial, ignore_errors=True)  # of a run that was killed
                try:
                    _unpack(path, partial / path.stem, progress)
                    partial.rename(target)
                finally:
                    shutil.rmtree(partial, ignore_errors=True)
                    lock.unlink(missing_ok=True)
                progress.say(f"{path.name} is unpacked in {target}, and not again when it is given again")
                break
        time.sleep(0.2)
    return next(p for p in target.iterdir() if p.is_dir())


def _unpack(path: Path, folder: Path, progress: Progress) -> None:
    """Write the images of an archive to a new folder."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = _images(path, archive)
            free = shutil.disk_usage(cache_dir()).free
            total = sum(member.file_size for member in members.values())
            if total > free:
                raise DataError(
                    f"{path} unpacks to {total / 1e9:.1f} GB, and there are {free / 1e9:.1f} GB left in {cache_dir()}; "
                    "free some space, or set MGCAP_HOME to a folder on another disk"
                )
            folder.mkdir(parents=True)
            with progress(f"Unpacking {path.name}", len(members)) as step:
                for name, member in members.items():
                    target = folder / name
                    target.parent.mkdir(parents=True, exist_ok=True)
                    with archive.open(member) as source, target.open("xb") as copy:
                        _copy(path, name, source, copy, member.file_size)
                    step(1)
    except NotImplementedError as error:
        raise DataError(
            f"{path} is compressed in a way that is not read here ({error}); unpack it and give the folder"
        ) from error
    except (zipfile.BadZipFile, EOFError, ValueError, RuntimeError, zlib.error) as error:
        raise DataError(f"{path} is not a whole zip archive: {error}; download it again") from error
    except (FileExistsError, NotADirectoryError) as error:
        raise DataError(f"{path} has two files of the name {Path(str(error.filename)).name}") from error
    except OSError as error:
        if error.errno != errno.EINVAL:  # a place before the file's beginning
            raise
        raise DataError(f"{path} is not a whole zip archive; download it again") from error


def _copy(path: Path, name: str, source: IO[bytes], copy: IO[bytes], size: int) -> None:
    """Copy a member, no more than it claims."""
    left = size
    while piece := source.read(PIECE):
        left -= len(piece)
        if left < 0:
            raise DataError(f"{path}: {name} is larger than the archive says")
        copy.write(piece)
    if left:
        raise DataError(f"{path}: {name} is shorter than the archive says; download it again")


def _images(path: Path, archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """The members to unpack by their names, all of which are safe."""
    every = archive.infolist()
    if len(every) > MAX_MEMBERS:
        raise DataError(f"{path} has {len(every):,} files; at most {MAX_MEMBERS:,} are unpacked")
    found: dict[str, zipfile.ZipInfo] = {}
    for member in every:
        name = _name(member)
        parts = PurePosixPath(name).parts
        if name.startswith("/") or name[1:2] == ":" or ".." in parts:
            raise DataError(f"{path} has a file that would lie outside of its folder: {name!r}; it is not unpacked")
        if stat.S_ISLNK(member.external_attr >> 16):
            raise DataError(f"{path} has a link to another file: {name!r}; it is not unpacked")
        hidden = any(part.startswith((".", "__MACOSX")) for part in parts)
        if member.is_dir() or hidden or not is_image(Path(name)):
            continue
        if member.flag_bits & _ENCRYPTED:
            raise DataError(f"{path} is encrypted; unpack it with its password and give the folder")
        if name in found:
            raise DataError(f"{path} has two files of the name {name}")
        found[name] = member
    if not found:
        raise DataError(f"{path} has no images (jpg, png, tif or webp)")
    total = sum(member.file_size for member in found.values())
    if total > MAX_BYTES:
        raise DataError(f"{path} unpacks to {total / 1e9:,.0f} GB; at most {MAX_BYTES / 1e9:.0f} GB are unpacked")
    return found


def _name(member: zipfile.ZipInfo) -> str:
    """A member's name with forward slashes; many programs write UTF-8 without saying so."""
    name = member.filename
    if not member.flag_bits & _UTF8:
        with suppress(UnicodeError):
            name = name.encode("cp437").decode("utf-8")
    return name.replace("\\", "/")
