"""A map that a request asked for, made tile by tile between the requests of others."""

from __future__ import annotations

import secrets
import shutil
import threading
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from mgcap.serve import answers
from mgcap.serve.service import Service

#: Tiles of a map between which other requests get their turn.
MAP_CHUNK = 16


class MapJob:
    """A map that a request asked for.

    Args:
        service: What requests share.
        model: Name of the model.
        options: Of :func:`mgcap.geo.mapping.map_raster`.
    """

    def __init__(self, service: Service, model: str, options: dict[str, Any]) -> None:
        self.service, self.model, self.options = service, model, options
        self.number = secrets.token_urlsafe(16)
        self.folder = service.folder / self.number
        self.inputs = self.folder / "in"
        self.outputs = self.folder / "out"
        self.gone = threading.Event()
        for folder in (self.folder, self.inputs, self.outputs):
            folder.mkdir()

    def _in_turn(self, plan: Any, chunks: Iterable[int]) -> Iterator[Any]:
        from mgcap.geo.work import compute_part

        own = self.service.models[self.model]
        for chunk in chunks:
            if self.gone.is_set():
                raise ConnectionAbortedError
            yield chunk, self.service.compute.run(partial(compute_part, own, plan, chunk)).result()

    def run(self, raster: Path) -> dict[str, Any]:
        """Make the map, on a thread of its own."""
        from mgcap.geo.mapping import map_raster

        done = map_raster(
            self.service.models[self.model],
            self.service.files[self.model],
            raster,
            self.outputs / "landuse.gpkg",
            workers=self._in_turn,
            exact=True,
            chunk=MAP_CHUNK,
            max_tiles=self.service.settings.max_tiles,
            max_tile_pixels=int(1e6 * self.service.settings.max_tile_megapixels),
            **self.options,
        )
        self.service.images.labels(self.model).inc(len(done.plan.grid))
        return answers.map_answer(self.number, done)

    def give_up(self) -> None:
        """Stop, and leave nothing behind."""
        self.gone.set()
        shutil.rmtree(self.folder, ignore_errors=True)

    def keep(self) -> None:
        """Let its files be downloaded."""
        shutil.rmtree(self.inputs, ignore_errors=True)
        self.service.keep_map(self.number, self.outputs)
