"""Stands before every request: host, origin, token, limits on size, time and number, and headers for browsers."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import MutableMapping
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mgcap.serve.access import Access, Clients, client_of, header_values
from mgcap.serve.refusals import Refusal, refusal_response
from mgcap.serve.settings import Settings

log = logging.getLogger("mgcap.serve")

HEADERS = {
    "content-security-policy": "default-src 'self'; img-src 'self' data: blob:; object-src 'none'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
#: Seconds for which a body may come slowly; from then on it must have come at this rate, in bytes a second.
PATIENCE, SLOWEST = 10.0, 10_000


class Guard:
    """ASGI middleware; see the module.

    Args:
        app: What it guards.
        settings: The limits.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app, self.settings = app, settings
        self.access = Access(settings)
        self.requests = Clients()
        self.under_way = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = False
        origin = self.access.allowed_origin(scope)

        async def guarded_send(message: Message) -> None:
            nonlocal started
            if body.refusal is not None and not started:
                return  # the application could not read the body and says so; the reason is given below
            if message["type"] == "http.response.start":
                started = True
                _add_headers(message, scope["path"], origin)
            await send(message)

        body = _Body(receive, self.settings)
        refused: Refusal | None = None
        try:
            await self._pass(scope, body, guarded_send)
        except Refusal as refusal:
            refused = refusal
        except Exception as error:
            log.exception("a request failed", exc_info=error)
            refused = Refusal(500, "something went wrong on our side")
        refused, body.refusal = body.refusal or refused, None
        if refused is not None and not started:
            await refusal_response(refused)(scope, receive, guarded_send)

    async def _pass(self, scope: Scope, body: _Body, send: Send) -> None:
        """Check a request and hand it on."""
        self._check_length(scope)
        self.access.check(scope)
        if scope["method"] == "OPTIONS" and self.access.allowed_origin(scope):
            raise Refusal(204, "")
        if not (scope["path"].startswith("/api/") and scope["method"] == "POST"):
            await self.app(scope, body.receive, send)
            return
        self._check_rate(scope)
        if self.under_way >= self.settings.queue:
            await body.drain()
            raise Refusal(503, "the service is busy; try again in a moment", Retry_After="2")
        self.under_way += 1
        try:
            await self.app(scope, body.receive, send)
        finally:
            self.under_way -= 1

    def _check_length(self, scope: Scope) -> None:
        length = (header_values(scope, b"content-length") or ["0"])[-1]
        if not (length.isascii() and length.isdigit() and len(length) < 20):
            raise Refusal(400, "the length of the request is not a number")
        if int(length) > self.settings.max_bytes:
            raise Refusal(413, f"uploads may have {self.settings.max_megabytes:g} MB", Connection="close")

    def _check_rate(self, scope: Scope) -> None:
        if not self.settings.rate:
            return
        client = client_of(scope, self.settings.proxy_headers)
        if self.requests.recent(client) >= self.settings.rate:
            wait = self.requests.seconds_left(client)
            raise Refusal(429, f"more than {self.settings.rate} requests a minute", Retry_After=str(wait))
        self.requests.add(client)


class _Body:
    """The body of a request, bounded in size and time."""

    def __init__(self, receive: Receive, settings: Settings) -> None:
        self._receive, self.settings = receive, settings
        self.received = 0
        self.start = time.monotonic()
        self.complete = False
        self.refusal: Refusal | None = None

    def _seconds_left(self) -> float:
        """Until the body must have come further."""
        allowed = min(self.settings.timeout, max(PATIENCE, self.received / SLOWEST))
        return max(0.0, self.start + allowed - time.monotonic())

    async def receive(self) -> Message:
        if self.complete:  # what comes now can only be that the client has gone
            return await self._receive()
        try:
            message = await asyncio.wait_for(self._receive(), self._seconds_left())
        except TimeoutError:
            self.refusal = Refusal(
                408, f"the request was not sent within {time.monotonic() - self.start:.0f} s", Connection="close"
            )
            raise self.refusal from None
        if message["type"] == "http.request":
            self.received += len(message.get("body", b""))
            self.complete = not message.get("more_body", False)
            if self.received > self.settings.max_bytes:
                self.refusal = Refusal(413, f"uploads may have {self.settings.max_megabytes:g} MB", Connection="close")
                raise self.refusal
        return message

    async def drain(self) -> None:
        """Take what the client sends, so that it gets to read the answer."""
        while not self.complete and (await self.receive())["type"] == "http.request":
            pass


def _add_headers(message: MutableMapping[str, Any], path: str, origin: str | None) -> None:
    present = {name.lower() for name, _ in message["headers"]}
    extra = dict(HEADERS)
    extra["cache-control"] = "no-cache" if path.startswith("/static/") else "no-store"
    if origin is not None:
        extra |= {
            "access-control-allow-origin": origin,
            "access-control-allow-headers": "authorization, content-type",
            "access-control-allow-methods": "GET, POST",
            "vary": "origin",
        }
    message["headers"] = [
        *message["headers"],
        *((name.encode(), value.encode("latin-1")) for name, value in extra.items() if name.encode() not in present),
    ]
