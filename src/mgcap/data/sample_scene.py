"""A real scene to map: 5000 x 5000 pixels of Kitsap County at 0.3 m, fetched once and kept in the cache."""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path

from mgcap.assets import PipSource, Say, atomic_path, cache_dir, fetch_first, sha256_of
from mgcap.errors import WeightsError

#: The sample image that the package splitraster carries (MIT licence).
SOURCE = PipSource("splitraster", "0.4.1", "f91e87ee587c6a07649e88c8b5489d767957e33573e1845800b6364b22a8b23e")
MEMBER = "RGB5k.tif"
SHA256 = "0355a2618c9756c664d5403c8daa3f4eadc708f644cf2c4f708d4e25201881b6"


def sample_scene(say: Say = lambda line: None) -> Path:
    """The file of the scene; the first call fetches it.

    Raises:
        WeightsError: If it cannot be had.
    """
    path = cache_dir() / "scenes" / "kitsap.tif"
    if path.is_file() and sha256_of(path) == SHA256:
        return path
    fetch_first("the scene of Kitsap County", [(SOURCE, lambda file: _unpack(file, path))], say)
    return path


def _unpack(archive: Path, path: Path) -> None:
    try:
        with tarfile.open(archive) as tar:
            members = [m for m in tar.getmembers() if m.isfile() and Path(m.name).name == MEMBER]
            content = tar.extractfile(members[0]) if members else None
            if content is None:
                raise WeightsError(f"{archive.name} holds no {MEMBER}")
            with atomic_path(path) as temporary:
                with temporary.open("wb") as file:
                    shutil.copyfileobj(content, file)
                if sha256_of(temporary) != SHA256:
                    raise WeightsError(f"{MEMBER} is not the file that was pinned")
    except (tarfile.TarError, OSError) as error:
        raise WeightsError(f"{archive.name} cannot be unpacked: {error}") from error
