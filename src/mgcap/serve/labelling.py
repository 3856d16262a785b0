"""The page on which people label a raster, and what it asks for."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, FastAPI, Query, Request
from fastapi.responses import FileResponse
from starlette.responses import Response
from starlette.staticfiles import StaticFiles

from mgcap._version import __version__
from mgcap.errors import DataError
from mgcap.labelling.live import Live
from mgcap.labelling.store import NotWrittenError
from mgcap.serve.label_classes import add_classes
from mgcap.serve.label_files import LabelFiles, add_files
from mgcap.serve.label_state import labels_of, state_of
from mgcap.serve.label_work import add_work
from mgcap.serve.labellers import person_of
from mgcap.serve.new_app import PAGE, new_app
from mgcap.serve.overlays import overlay
from mgcap.serve.pyramid import Pyramid
from mgcap.serve.refusals import Refusal, refusal_response
from mgcap.serve.settings import Settings
from mgcap.serve.uploads import UploadRoute

#: Seconds that a page waits for something new in one request, and between two looks.
WAIT, LOOK = 2.0, 0.03


class LabelService:
    """What requests share.

    Args:
        live: The project.
        user: Who labels where nobody has a token with a name.
    """

    def __init__(self, live: Live, user: str) -> None:
        self.live, self.user = live, user
        project = live.project
        self.pyramids = [
            Pyramid(project.folder / own.raster, index.plan.look, project.allow_vrt)
            for own, index in zip(project.about.rasters, project.indexes, strict=True)
        ]
        self.files = LabelFiles(live)
        self._open = True

    def close(self) -> None:
        """Stop all threads, and close the project."""
        if not self._open:
            return
        self._open = False
        for pyramid in self.pyramids:
            pyramid.close()
        self.files.close()
        self.live.close()

    def pyramid(self, raster: int) -> Pyramid:
        """That of a raster."""
        if not 0 <= raster < len(self.pyramids):
            raise Refusal(404, "there is no such raster")
        return self.pyramids[raster]


def create_label_app(live: Live, user: str, settings: Settings | None = None) -> FastAPI:
    """The application.

    Args:
        live: The project.
        user: Who labels where nobody has a token with a name.
        settings: Limits.
    """
    settings = settings or Settings()
    service = LabelService(live, user)

    statuses = (400, 401, 403, 404, 421, 422, 500, 503)
    app = new_app(service, live.project.folder, settings, title="mgcap label", statuses=statuses)

    @app.exception_handler(NotWrittenError)
    async def busy(request: Request, error: NotWrittenError) -> Response:
        return refusal_response(Refusal(503, str(error)))  # it is right to send it again

    _add_page(app)
    router = APIRouter(prefix="/api/label", route_class=UploadRoute)
    _add_state(router, service)
    _add_pictures(router, service)
    add_classes(router, live, user)
    add_work(router, live, user)
    add_files(router, service.files, user, settings.people.values())
    app.include_router(router)
    return app


def _add_page(app: FastAPI) -> None:
    @app.get("/", include_in_schema=False)
    async def page() -> FileResponse:
        return FileResponse(PAGE / "label.html")

    app.mount("/static", StaticFiles(directory=PAGE), name="static")

    @app.get("/health", summary="Whether the service is up")
    async def health() -> dict[str, Any]:
        return {"status": "ok", "version": __version__}


def _add_state(router: APIRouter, service: LabelService) -> None:
    live = service.live

    @router.get("/state", summary="Classes, counts and accuracy; with `after` once something has changed since")
    async def state(request: Request, after: Annotated[int, Query(ge=0)] = 0) -> dict[str, Any]:
        waited = 0.0
        while after and live.revision == after and waited < WAIT and not await request.is_disconnected():
            if int(waited / 0.5) != int((waited - LOOK) / 0.5):  # another process may have written
                await asyncio.to_thread(live.refresh)
            await asyncio.sleep(LOOK)
            waited += LOOK
        person = person_of(request, service.user)
        return await asyncio.to_thread(state_of, live, person, service.pyramids, service.files.said)

    @router.get("/labels", summary="All labelled cells")
    def labels() -> dict[str, Any]:
        return labels_of(live)


def _add_pictures(router: APIRouter, service: LabelService) -> None:
    live = service.live

    @router.get("/tiles/{raster}/{z}/{x}/{y}.jpg", summary="A part of a raster", response_class=Response)
    async def tile(raster: int, z: int, x: int, y: int) -> Response:
        try:
            picture = service.pyramid(raster).tile(z, x, y)
        except DataError as error:
            raise Refusal(404, str(error)) from None
        content = await asyncio.wrap_future(picture)
        return Response(content, media_type="image/jpeg", headers={"cache-control": "private, max-age=86400"})

    @router.get("/overlays/{raster}/{layer}.png", summary="A layer, one pixel for each cell", response_class=Response)
    def picture(request: Request, raster: int, layer: str) -> Response:
        service.pyramid(raster)
        fitted = live.fitted
        tag = f'"{layer}-{raster}-{fitted.revision}-{live.wanted}"'
        headers = {"etag": tag, "cache-control": "private, no-cache"}
        if tag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(overlay(live, fitted, raster, layer), media_type="image/png", headers=headers)
