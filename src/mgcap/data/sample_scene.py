"""A real scene to map: 5000 x 5000 pixels of Kitsap County at 0.3 m, fetched once and kept in the cache."""

from __future__ import annotations

import hashlib
from pathlib import Path

from mgcap.errors import WeightsError
from mgcap.persistence.archives import read_members
from mgcap.persistence.downloads import PipSource, Say, fetch_first
from mgcap.persistence.files import atomic_path, cache_dir, sha256_of

#: The sample image that the package splitraster carries (MIT licence).
SOURCE = PipSource("splitraster", "0.4.1", "f91e87ee587c6a07649e88c8b5489d767957e33573e1845800b6364b22a8b23e")
MEMBER = "RGB5k.tif"
_ADVICE = "map a raster of your own instead: mgcap map scene.tif"
SHA256 = "0355a2618c9756c664d5403c8daa3f4eadc708f644cf2c4f708d4e25201881b6"


def sample_scene(say: Say = lambda line: None) -> Path:
    """The file of the scene; the first call fetches it.

    Raises:
        WeightsError: If it cannot be had.
    """
    path = cache_dir() / "scenes" / "kitsap.tif"
    if path.is_file() and sha256_of(path) == SHA256:
        return path
    fetch_first("the scene of Kitsap County", [(SOURCE, lambda file: _unpack(file, path))], say, _ADVICE)
    return path


def _unpack(archive: Path, path: Path) -> None:
    members = read_members(archive, lambda name: Path(name).name == MEMBER)
    if not members:
        raise WeightsError(f"{archive.name} holds no {MEMBER}")
    content = next(iter(members.values()))
    if hashlib.sha256(content).hexdigest() != SHA256:
        raise WeightsError(f"{MEMBER} is not the file that was pinned")
    try:
        with atomic_path(path) as temporary:
            temporary.write_bytes(content)
    except OSError as error:
        raise WeightsError(f"{path} cannot be written: {error.strerror}") from error
