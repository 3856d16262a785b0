"""The service: what a program asks at ``/api``, and the page for people."""

from __future__ import annotations

import asyncio
import math
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, File, Form, Request, UploadFile
from fastapi.responses import FileResponse, PlainTextResponse
from prometheus_client import generate_latest
from pydantic import AfterValidator
from starlette.staticfiles import StaticFiles

from mgcap._version import __version__
from mgcap.classifier import SceneClassifier
from mgcap.errors import MgcapError
from mgcap.persistence.shipped import model_card
from mgcap.serve import answers
from mgcap.serve.compute import answer_of
from mgcap.serve.maps import MapJob
from mgcap.serve.new_app import PAGE, new_app
from mgcap.serve.refusals import RESPONSES, Refusal
from mgcap.serve.service import Measure, Service
from mgcap.serve.settings import Settings
from mgcap.serve.uploads import plain_raster, uploaded_pixels

#: What may be answered to a file.
OF_WORK: dict[int | str, dict[str, Any]] = {
    status: RESPONSES[status] for status in (400, 404, 408, 413, 415, 422, 429, 503)
}

Upload = Annotated[UploadFile, File(description="A JPEG, PNG, WebP or TIFF file.")]
ModelName = Annotated[str, Form(description="Name of the model; by default the first.", max_length=200)]
ClassName = Annotated[str, Form(description="Name of a class of the model.", max_length=200)]


def _check_tile(text: str) -> str:
    """Refuse sides that are no side of a tile."""
    from mgcap.geo.plan import parse_tile

    if text:
        try:
            parse_tile(text)
        except MgcapError as error:
            raise ValueError(str(error)) from None
    return text


def _check_scale(text: str) -> str:
    """Refuse numbers that are not finite."""
    parts = text.split(",")
    if len(parts) == 2:
        try:
            numbers = [float(part) for part in parts]
        except ValueError:
            return text  # choose_look says what scales there are
        if not all(math.isfinite(number) and abs(number) < 1e30 for number in numbers):
            raise ValueError("black and white must be finite numbers")
    return text


Overlap = Annotated[float, Form(ge=0, le=0.75, allow_inf_nan=False, description="Of tiles, as part of their side.")]
TileSide = Annotated[str, Form(max_length=20, description="As 80m or 256px."), AfterValidator(_check_tile)]
Bands = Annotated[
    str, Form(max_length=20, pattern=r"^$|^[1-9][0-9]{0,3}(,[1-9][0-9]{0,3}){0,2}$", description="As 4,3,2.")
]
Scale = Annotated[
    str, Form(max_length=40, description="auto, percentiles or BLACK,WHITE."), AfterValidator(_check_scale)
]


Unknown = Annotated[
    float,
    Form(
        ge=0,
        le=0.99,
        allow_inf_nan=False,
        description="Answer unknown beyond what this share of held-out training images showed, as 0.01; 0: off.",
    ),
]
MapUnknown = Annotated[
    float | None,
    Form(
        ge=0,
        le=0.99,
        allow_inf_nan=False,
        description="Cells are unknown beyond what this share of held-out training images showed; 0: off; by default "
        "0.01, if the model knows.",
    ),
]


def create_app(models: dict[str, tuple[Path, SceneClassifier]], settings: Settings | None = None) -> FastAPI:
    """The application.

    Args:
        models: What :func:`load_models` gave; the first is the default.
        settings: Limits.
    """
    settings = settings or Settings()
    service = Service(models, settings)

    app = new_app(
        service,
        service.folder,
        settings,
        title="mgcap",
        description="What aerial and satellite images show, by multi-granularity canonical appearance pooling.",
        statuses=(401, 403, 421, 500),
    )
    _add_pages(app, service)
    _add_work(app, service)
    _add_maps(app, service)
    app.add_middleware(Measure, service=service)
    return app


def _add_pages(app: FastAPI, service: Service) -> None:
    @app.get("/", include_in_schema=False)
    async def page() -> FileResponse:
        return FileResponse(PAGE / "index.html")

    @app.get("/docs", include_in_schema=False)
    async def docs() -> FileResponse:
        return FileResponse(PAGE / "docs.html")

    app.mount("/static", StaticFiles(directory=PAGE), name="static")

    @app.get("/health", summary="Whether the service is up")
    async def health() -> dict[str, Any]:
        return {"status": "ok", "version": __version__, "waiting": service.compute.waiting()}

    @app.get("/metrics", response_class=PlainTextResponse, summary="Counters for Prometheus")
    async def metrics() -> PlainTextResponse:
        return PlainTextResponse(generate_latest(service.registry), media_type="text/plain; version=0.0.4")

    @app.get("/api/models", summary="The models that can be asked")
    async def models() -> list[dict[str, Any]]:
        return [answers.model_summary(name, classifier) for name, classifier in service.models.items()]

    @app.get("/api/models/{name}", summary="The card of a model", responses={404: RESPONSES[404], 422: RESPONSES[422]})
    async def card(name: str) -> dict[str, Any]:
        own = service.models[service.model(name)]
        return {
            **answers.model_summary(name, own),
            "provenance": own.provenance_,
            "metrics": own.metrics_,
            "card": model_card(service.files[name]),
        }

    @app.get(
        "/api/maps/{number}/{name}",
        summary="A file of a finished map",
        responses={404: RESPONSES[404], 422: RESPONSES[422]},
        response_class=FileResponse,
    )
    async def download(number: str, name: str) -> FileResponse:
        folder = service.maps.get(number)
        files = {file.name: file for file in folder.iterdir()} if folder else {}
        if name not in files:
            raise Refusal(404, "there is no such map; maps are kept for a while only")
        return FileResponse(files[name], filename=name)


def _add_work(app: FastAPI, service: Service) -> None:
    settings = service.settings

    @app.post("/api/predict", summary="What an image shows", responses=OF_WORK)
    async def predict(request: Request, file: Upload, model: ModelName = "", unknown: Unknown = 0.0) -> dict[str, Any]:
        name = service.model(model)
        limits = service.models[name].limits(unknown)
        async with _pixels(service, file) as pixels:
            said = await _answer(service, request, service.compute.classify(name, pixels), settings.timeout)
        service.images.labels(name).inc()
        return {"model": name, **answers.prediction(service.models[name].classes_, said, limits)}

    @app.post("/api/explain", summary="Why an image is called what it is called", responses=OF_WORK)
    async def explain(
        request: Request,
        file: Upload,
        model: ModelName = "",
        target: ClassName = "",
        contrast: ClassName = "",
        unknown: Unknown = 0.0,
    ) -> dict[str, Any]:
        name = service.model(model)
        limits = service.models[name].limits(unknown)
        async with _pixels(service, file) as pixels:

            def work() -> dict[str, Any]:
                found = service.models[name].explain(pixels, target or None, contrast or None)
                return answers.explanation(found, limits)

            found = await _answer(service, request, service.compute.run(work), settings.timeout)
        service.images.labels(name).inc()
        return {"model": name, **found}


def _add_maps(app: FastAPI, service: Service) -> None:
    settings = service.settings

    @app.post("/api/map", summary="A class map of a GeoTIFF", responses=OF_WORK)
    async def make_map(
        request: Request,
        file: Upload,
        model: ModelName = "",
        overlap: Overlap = 0.0,
        tile: TileSide = "",
        bands: Bands = "",
        scale: Scale = "auto",
        unknown: MapUnknown = None,
    ) -> dict[str, Any]:
        name = service.model(model)
        chosen = tuple(int(b) for b in bands.split(",")) if bands else None
        options = {"overlap": overlap, "tile": tile or None, "scale": scale or "auto", "unknown": unknown}
        job = MapJob(service, name, options)
        try:
            async with AsyncExitStack() as stack:
                async with asyncio.timeout(settings.map_timeout):
                    await stack.enter_async_context(service.rasters)
                    raster, notes = await plain_raster(service, file, job.inputs, chosen)
                work = service.map_threads.submit(job.run, raster)
                found = await _answer(service, request, work, settings.map_timeout)
        except TimeoutError:
            job.give_up()
            raise Refusal(503, "the raster could not be read in time; try again", Retry_After="5") from None
        except BaseException:
            job.give_up()
            raise
        job.keep()
        return {"model": name, **found, "notes": notes}


@asynccontextmanager
async def _pixels(service: Service, file: UploadFile) -> AsyncIterator[Any]:
    """The pixels of an upload, decoded within the time of a request."""
    seconds = service.settings.timeout
    with tempfile.TemporaryDirectory(dir=service.folder) as folder:
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(seconds):
                    pixels = await stack.enter_async_context(uploaded_pixels(service, file, Path(folder)))
            except TimeoutError:
                raise Refusal(503, f"there was no answer within {seconds:g} s; try again", Retry_After="5") from None
            yield pixels


async def _answer(service: Service, request: Request, future: Any, seconds: float) -> Any:
    try:
        return await answer_of(future, request.is_disconnected, seconds)
    except TimeoutError:
        raise Refusal(503, f"there was no answer within {seconds:g} s; try again", Retry_After="5") from None
    except ConnectionAbortedError:
        raise Refusal(503, "the client has gone") from None
