"""What every service has: its errors in one sentence, its guard, uploads in bounds, and no page of others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from mgcap._version import __version__
from mgcap.errors import MgcapError
from mgcap.serve.guard import Guard
from mgcap.serve.refusals import RESPONSES, Refusal, refusal_response
from mgcap.serve.settings import Settings
from mgcap.serve.uploads import UploadRoute

PAGE = Path(__file__).parent / "page"


class Closable(Protocol):
    """What works for an application, until that ends."""

    def close(self) -> None:
        """End the work."""


def new_app(
    service: Closable, folder: Path, settings: Settings, *, title: str, statuses: Sequence[int], description: str = ""
) -> FastAPI:
    """An application without a page yet.

    Args:
        service: Closed when the application ends; it is ``app.state.service``.
        folder: Of the service, which answers do not name.
        settings: Limits.
        title: Of the application.
        statuses: What every request may be refused with.
        description: Of the application, in a sentence.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(service.close)

    app = FastAPI(
        title=title,
        version=__version__,
        description=description,
        docs_url=None,  # its page would fetch scripts from elsewhere; ours does not
        redoc_url=None,
        lifespan=lifespan,
        responses={status: RESPONSES[status] for status in statuses},
    )
    app.state.service = service
    app.router.route_class = UploadRoute
    _add_errors(app, folder)
    app.add_middleware(Guard, settings=settings)
    return app


def _add_errors(app: FastAPI, folder: Path) -> None:
    @app.exception_handler(Refusal)
    async def refused(request: Request, error: Refusal) -> Response:
        return refusal_response(error)

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> Response:
        return refusal_response(Refusal(error.status_code, str(error.detail).lower(), **dict(error.headers or {})))

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        parts = [f"{'.'.join(str(p) for p in e['loc'][1:]) or 'the body'}: {e['msg']}" for e in error.errors()]
        return refusal_response(Refusal(422, "; ".join(parts).lower()))

    @app.exception_handler(MgcapError)
    async def ours(request: Request, error: MgcapError) -> Response:
        words = ("the file" if word.startswith(str(folder)) else word for word in str(error).split(" "))
        return refusal_response(Refusal(400, " ".join(words)))
