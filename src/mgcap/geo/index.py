"""The index of a raster: a vector for each of its cells, in a Zarr store with checksums.

A store is made beside its place and moved there, so that it is there as a whole. Blocks are written one by one, each
whole or not at all, so that a killed run loses the block that it was at; processes that write the same index share the
work. Only what looks like our own stores is read: other types of arrays and codecs are refused before their data is.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from mgcap.errors import RasterError, missing
from mgcap.geo.blocks import Cells, IndexPlan
from mgcap.geo.opening import is_virtual
from mgcap.persistence.header import one_line
from mgcap.runtime import Progress, silent

if TYPE_CHECKING:
    import zarr


#: Raised when stores come out otherwise.
FORMAT = 3
_KEY = "mgcap_index"
#: Types of the arrays, and what they say where nothing was written.
_ARRAYS = {"vectors": ("float16", float("nan")), "rotations": ("uint16", 0xFFFF), "valid": ("uint8", 0)}
_CODECS = ("bytes", "crc32c")
#: The most cells, numbers of a vector and bytes of a block that an index may say it has.
MAX_CELLS, MAX_LENGTH, MAX_BLOCK = 1 << 31, 1 << 20, 1 << 28
#: Bytes of vectors up to which an index that keeps its blocks keeps more.
KEPT_BYTES = 1 << 28
#: In what an index may differ from what is wanted, in words; by the fields of its plan.
_WORDS = {
    "size": "the size of the raster", "changed": "the date or length of the raster's file", "bands": "`bands`",
    "sources": "the files that the raster is read from", "shape": "the resolution of tiles", "black": "`scale`",
    "white": "`scale`", "min_valid": "`min_valid`",
}  # fmt: skip


class About(BaseModel):
    """What an index says of itself.

    Attributes:
        format: Version of the layout.
        plan: How its raster was cut and read.
        descriptor: Fingerprint of what made the descriptors, but for the engine.
        projection: Fingerprint of the projection; empty where vectors are whole descriptors.
        angles: The rotations in degrees.
        crs: The coordinate system of the raster as WKT; empty if it has none.
        transform: From cells to coordinates, six numbers.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: int
    plan: IndexPlan
    descriptor: str
    projection: str
    angles: tuple[float, ...]
    crs: str
    transform: tuple[float, float, float, float, float, float]

    @property
    def of_pixels(self) -> tuple[float, float, float, float, float, float]:
        """From pixels to coordinates."""
        a, b, c, d, e, f = self.transform
        width, height = self.plan.cell
        return a / width, b / height, c, d / width, e / height, f


@dataclass(frozen=True)
class Index:
    """An index that is open.

    Attributes:
        name: Its path or address.
        about: What it says of itself.
        group: Its arrays.
        memory: Blocks that were read, by their numbers; None: none is kept.
    """

    name: str
    about: About
    group: zarr.Group
    memory: dict[int, Cells] | None = None

    def keeping(self) -> Index:
        """The same, which keeps the first of the blocks that it reads, so that a small one is read once."""
        return replace(self, memory={})

    @property
    def plan(self) -> IndexPlan:
        """How its raster was cut and read."""
        return self.about.plan

    def differences(self, about: About) -> list[str]:
        """In what it differs from what is wanted, but for finer cells, and the paths of raster and model."""
        own, wanted = self.plan, about.plan
        found = [word for name, word in _WORDS.items() if getattr(own, name) != getattr(wanted, name)]
        if own.changed == (0, 0) and own.raster != wanted.raster:  # its name is all that is known of it
            found.append("the raster")
        places = zip(self.about.of_pixels, about.of_pixels, strict=True)
        alike = all(math.isclose(a, b, rel_tol=1e-12) for a, b in places)
        if (self.about.crs, own.offset) != (about.crs, wanted.offset) or not alike:
            found.append("the place of the raster")
        if own.dense and not wanted.dense:  # tiles that were looked at one by one do for either
            found.append("`exact`")
        if own.engine != wanted.engine and self.missing():
            found.append("`engine`")
        if (self.about.descriptor, self.about.projection) != (about.descriptor, about.projection):
            found.append("the descriptors of the model")
        if max(abs(a / b - 1) for a, b in zip(own.tile, wanted.tile, strict=True)) > 0.05:  # they are whole cells
            found.append("`tile`")
        return list(dict.fromkeys(found)) + (["`cells`"] if own.cells_in_tile % wanted.cells_in_tile else [])

    def has(self, chunk: int) -> bool:
        """Whether a block was written and is whole."""
        try:
            return _whole(self.read(chunk))
        except RasterError:
            return False

    def write(self, chunk: int, cells: Cells) -> None:
        """Write a block."""
        import zarr

        place = self.plan.cells(chunk)
        (self.memory or {}).pop(chunk, None)
        with zarr.config.set({"array.write_empty_chunks": True}):  # a block without data is done too
            for name in _ARRAYS:  # the order counts, see _whole()
                self._array(name)[place] = getattr(cells, name)

    def read(self, chunk: int) -> Cells:
        """The cells of a block; none has data where it was not written yet.

        Raises:
            RasterError: If it is damaged.
        """
        if self.memory and chunk in self.memory:
            return self.memory[chunk]
        place = self.plan.cells(chunk)
        try:
            cells = Cells(*(np.asarray(self._array(name)[place]) for name in _ARRAYS))
            known = cells.valid > 0
            if known.any() and (_unset(cells) or cells.rotations[known].max() >= len(self.about.angles)):
                raise ValueError("one of its files is missing")
        except Exception as error:  # a damaged chunk fails in too many ways to name
            raise RasterError(f"a part of the index {self.name} is damaged; make it again with mgcap index") from error
        if self.memory is not None and len(self.memory) * cells.vectors.nbytes < KEPT_BYTES and _whole(cells):
            self.memory[chunk] = cells
        return cells

    def _array(self, name: str) -> Any:
        return self.group[name]

    def blocks(self, progress: Progress = silent, title: str = "") -> Iterator[tuple[tuple[slice, slice], Cells]]:
        """All blocks, with the rows and columns of their cells."""
        with progress(title, self.plan.chunks) as step:
            for chunk in range(self.plan.chunks):
                yield self.plan.cells(chunk), self.read(chunk)
                step(1)

    def missing(self, progress: Progress = silent) -> list[int]:
        """Blocks that are to be computed, as they were not yet written or are damaged."""
        found = []
        with progress("Checking the index", self.plan.chunks) as step:
            for chunk in range(self.plan.chunks):
                if not self.has(chunk):
                    found.append(chunk)
                step(1)
        return found


def create_index(path: Path, about: About, length: int) -> Index:
    """An index with no block yet; or the one that another process has made there meanwhile."""
    import zarr
    from zarr.codecs import BytesCodec, Crc32cCodec

    path.parent.mkdir(parents=True, exist_ok=True)
    about = _seen_from(about, path.parent)
    grid, block = about.plan.grid, about.plan.block
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
        made = Path(folder) / "index"
        group = zarr.create_group(made, zarr_format=3, attributes={_KEY: about.model_dump(mode="json")})
        for name, (dtype, nothing) in _ARRAYS.items():
            last = (length,) if name == "vectors" else ()
            group.create_array(
                name,
                shape=(grid.rows, grid.columns, *last),
                chunks=(min(block, grid.rows), min(block, grid.columns), *last),
                dtype=dtype,
                fill_value=nothing,
                serializer=BytesCodec(),
                compressors=[Crc32cCodec()],
                filters=None,
            )
        try:
            made.rename(path)
        except OSError:  # another process was faster
            if not path.is_dir():
                raise
    return open_index(path)


def _seen_from(about: About, folder: Path) -> About:
    """With the path of the raster from there: it says less of its owner's machine, and both can be moved together."""
    raster = about.plan.raster
    if is_virtual(raster):
        return about
    return about.model_copy(
        update={"plan": about.plan.model_copy(update={"raster": os.path.relpath(raster, folder.resolve())})}
    )


def open_index(path: str | Path) -> Index:
    """Open an index for reading, at a path or an address that fsspec knows.

    Raises:
        RasterError: With one sentence, if it is none.
    """
    import zarr

    if not is_address(path) and not Path(path).is_dir():
        raise RasterError(missing("index", Path(path)) if not Path(path).exists() else f"{path} is not an index")
    if not is_address(path) and not (Path(path) / "zarr.json").is_file():
        raise RasterError(f"{path} is not an index but another folder")
    try:
        mode: Any = "r" if is_address(path) else "r+"
        group = zarr.open_group(path, mode=mode, zarr_format=3, use_consolidated=False)
        about = About.model_validate(group.attrs.asdict().get(_KEY))
        _check(group, about)
    except ValidationError as error:
        raise RasterError(f"{path} is not an index that this version of mgcap knows") from error
    except ImportError as error:
        raise RasterError(
            f"{path} needs more packages to be read: pip install 'mgcap[s3]' ({one_line(error)})"
        ) from error
    except Exception as error:  # whatever a store may be instead
        raise RasterError(f"{path} is not an index, or damaged: {one_line(error)}") from error
    return Index(str(path), about, group)


def _check(group: zarr.Group, about: About) -> None:
    """See that a store is as we make it.

    Raises:
        ValueError: If it is not.
    """
    grid, block = about.plan.grid, about.plan.block
    if about.format != FORMAT:
        raise ValueError(f"it has format {about.format}, not {FORMAT}")
    if grid.rows * grid.columns > MAX_CELLS:
        raise ValueError("it says that it has too many cells")
    for name, (dtype, nothing) in _ARRAYS.items():
        array: Any = group[name]
        shape, chunks = (grid.rows, grid.columns), (min(block, grid.rows), min(block, grid.columns))
        if name == "vectors" and len(array.shape) == 3 and array.shape[2] <= MAX_LENGTH:
            shape, chunks = (*shape, array.shape[2]), (*chunks, array.shape[2])  # type: ignore[assignment]
        codecs = tuple(codec["name"] for codec in array.metadata.to_dict()["codecs"])
        if (array.shape, array.chunks, str(array.dtype), codecs) != (shape, chunks, dtype, _CODECS):
            raise ValueError(f"its {name} are not as they should be")
        if not np.array_equal(array.fill_value, nothing, equal_nan=True):  # files that are not there would be data
            raise ValueError(f"its {name} are not as they should be")
        if math.prod(chunks) * array.dtype.itemsize > MAX_BLOCK:
            raise ValueError("it says that it has too large blocks")


def is_address(path: str | Path) -> bool:
    """Whether an index is elsewhere, where fsspec reads it."""
    return "://" in str(path)


def _unset(cells: Cells) -> bool:
    """Whether the vectors of a block were never written; in one that was, those without data are zero."""
    return bool(np.isnan(cells.vectors[0, 0]).all())


def _whole(cells: Cells) -> bool:
    """Whether all of a block was written; what says which cells have data is written last."""
    return not _unset(cells) and bool(cells.valid.any() or not cells.vectors.any())
