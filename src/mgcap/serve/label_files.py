"""Files of a project that is labelled: its model, its map, and labels that come from elsewhere."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, File, Form, Request, UploadFile
from fastapi.responses import FileResponse

from mgcap.errors import DataError, MgcapError
from mgcap.geo.vectors import SUFFIXES
from mgcap.labelling.live import Live
from mgcap.labelling.loading import load_labels
from mgcap.labelling.saving import save_model
from mgcap.runtime import Progress
from mgcap.serve.labellers import known_people, person_of
from mgcap.serve.refusals import Refusal

log = logging.getLogger("mgcap.serve")

MODEL = "model.mgcap"
_BLOCK = 1 << 20
Upload = Annotated[UploadFile, File(description="A GeoPackage, GeoJSON, GeoParquet or CSV file.")]
Field = Annotated[str, Form(max_length=200, description="The field with the class; by default class.")]


class _Steps(Progress):
    """Progress that a page asks for."""

    def __init__(self, said: Callable[..., None]) -> None:
        self._said = said

    def __call__(self, title: str, total: int | None) -> AbstractContextManager[Callable[[int], None]]:
        return self._step(title, total)

    @contextmanager
    def _step(self, title: str, total: int | None) -> Iterator[Callable[[int], None]]:
        done = 0

        def step(more: int) -> None:
            nonlocal done
            done += more
            self._said(title=title, share=round(done / total, 3) if total else None)

        step(0)
        yield step


class LabelFiles:
    """Writes files of a project, one job after the other, while people label on.

    Args:
        live: The project.
    """

    def __init__(self, live: Live) -> None:
        self.live = live
        self.folder = live.project.folder
        self.said: dict[str, Any] | None = None
        self.loader = ThreadPoolExecutor(1, "load")  # so that files leave the threads of other requests free
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def close(self) -> None:
        """Wait a moment for the job under way; files are written whole or not at all."""
        self.loader.shutdown(wait=False, cancel_futures=True)
        if self._thread is not None:
            self._thread.join(5)

    def begin(self, kind: str, work: Callable[[Progress], dict[str, Any]]) -> None:
        """Begin a job.

        Raises:
            DataError: If another one is under way.
        """
        with self._lock:
            if self._thread is not None and self._thread.is_alive():
                raise DataError("another file is being written; try again in a moment")
            self._say(kind=kind, title="", share=None, done=False, error="", number=time.time_ns())
            self._thread = threading.Thread(target=self._run, args=(work,), name=kind, daemon=True)
            self._thread.start()

    def _say(self, **what: Any) -> None:
        self.said = {**(self.said or {}), **what}
        self.live.touch()

    def _run(self, work: Callable[[Progress], dict[str, Any]]) -> None:
        try:
            found = work(_Steps(self._say))
            self._say(done=True, share=1.0, **found)
        except MgcapError as error:
            self._say(done=True, error=str(error).replace("`", ""))
        except Exception as error:
            log.exception("a file could not be written", exc_info=error)
            self._say(done=True, error="something went wrong on our side")

    def save(self, progress: Progress) -> dict[str, Any]:
        """Write the model."""
        with progress("Saving the model", None):
            path = self.folder / MODEL
            own = save_model(self.live, path)
        return {"files": [MODEL, Path(MODEL).with_suffix(".md").name], "classes": len(own.classes_)}

    def export(self, progress: Progress) -> dict[str, Any]:
        """Write the model, and the map of each raster by it."""
        from mgcap.geo.mapping import map_raster

        with progress("Saving the model", None):
            own = save_model(self.live, self.folder / MODEL)
        files = [MODEL]
        project = self.live.project
        for about, index, name in zip(project.about.rasters, project.indexes, map_names(project.names), strict=True):
            plan = index.plan
            done = map_raster(
                own,
                self.folder / MODEL,
                project.folder / about.raster,
                self.folder / name,
                index=project.folder / about.index,
                progress=progress,
                cells=plan.cells_in_tile,
                tile=f"{plan.cells_in_tile * plan.cell[0]}px" if plan.cell[0] == plan.cell[1] else None,
                bands=plan.bands,
                scale=f"{plan.black},{plan.white}",
                min_valid=plan.min_valid,
                allow_vrt=project.allow_vrt,
                exact=False,
            )
            files += [file.name for file in done.files]
        return {"files": files}


def map_names(rasters: Sequence[str]) -> list[str]:
    """Names of the maps of rasters: short ones, unless ``a.tif`` and ``a.jp2`` would have the same."""
    stems = [Path(name).stem for name in rasters]
    unique = len({stem.casefold() for stem in stems}) == len(stems)
    return [f"{stem if unique else name}.map.gpkg" for stem, name in zip(stems, rasters, strict=True)]


def add_files(router: APIRouter, files: LabelFiles, user: str, people: Collection[str] = ()) -> None:
    """Routes on files."""
    live = files.live

    @router.post("/save", summary="Write the model into the project's folder")
    def save() -> dict[str, Any]:
        files.begin("save", files.save)
        return {"revision": live.revision}

    @router.post("/export", summary="Write the map of each raster into the project's folder")
    def export() -> dict[str, Any]:
        files.begin("export", files.export)
        return {"revision": live.revision}

    @router.get("/files/{name}", summary="A file that was written", response_class=FileResponse)
    def download(name: str) -> FileResponse:
        if name not in (files.said or {}).get("files", ()) or not (files.folder / name).is_file():
            raise Refusal(404, "there is no such file")
        return FileResponse(files.folder / name, filename=name)

    @router.post("/load", summary="Take labels from a vector file, or a colleague's labels.gpkg")
    async def load(request: Request, file: Upload, field: Field = "") -> dict[str, Any]:
        import asyncio
        import tempfile

        suffix = Path(file.filename or "").suffix.lower()
        if suffix not in SUFFIXES or suffix == ".shp":
            raise Refusal(415, "labels are taken from .gpkg, .geojson, .parquet and .csv files")
        stem = "".join(c for c in Path(file.filename or "").stem if c.isalnum() or c in " -_.")[:80].strip(". ")
        with tempfile.TemporaryDirectory(dir=files.folder, prefix=".load.") as folder:
            path = Path(folder) / f"{stem or 'labels'}{suffix}"
            with path.open("wb") as target:
                while part := await file.read(_BLOCK):
                    target.write(part)
            person, everyone = person_of(request, user), {*people, *known_people(files.folder)}
            load = partial(load_labels, live.project, path, field or None, person, everyone)
            try:
                found = await asyncio.get_running_loop().run_in_executor(files.loader, load)
            except DataError as error:
                raise DataError(str(error).replace(f"{folder}/", "")) from None
        await asyncio.to_thread(live.refresh, True)
        return {**found._asdict(), "revision": live.revision}
