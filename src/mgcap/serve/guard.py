"""Stands before every request: token, limits on size, time and number, and headers that keep browsers safe."""

from __future__ import annotations

import asyncio
import hmac
import time
from collections import OrderedDict, deque
from collections.abc import MutableMapping
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mgcap.serve.refusals import Refusal, refusal_response
from mgcap.serve.settings import Settings

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
#: What anyone may see: the page itself, and whether the service is up.
OPEN = ("/", "/health", "/docs")
#: Clients whose requests are counted; the longest silent are forgotten first.
CLIENTS = 10_000


class Guard:
    """ASGI middleware; see the module.

    Args:
        app: What it guards.
        settings: The limits.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app, self.settings = app, settings
        self.under_way = 0
        self.seen: OrderedDict[str, deque[float]] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = False

        async def guarded_send(message: Message) -> None:
            nonlocal started
            if body.refusal is not None and not started:
                return  # the application could not read the body and says so; why it could not is told below
            if message["type"] == "http.response.start":
                started = True
                _add_headers(message, scope["path"])
            await send(message)

        work = scope["path"].startswith("/api/") and scope["method"] == "POST"
        body = _Body(receive, self.settings)
        refused: Refusal | None = None
        try:
            self._check(scope)
            if not work:
                await self.app(scope, body.receive, guarded_send)
                return
            self._check_rate(scope)
            if self.under_way >= self.settings.queue:
                await body.drain()
                raise Refusal(503, "the service is busy; try again in a moment", Retry_After="2")
            self.under_way += 1
            try:
                await self.app(scope, body.receive, guarded_send)
            finally:
                self.under_way -= 1
        except Refusal as refusal:
            refused = refusal
        refused, body.refusal = body.refusal or refused, None
        if refused is not None and not started:
            await refusal_response(refused)(scope, receive, guarded_send)

    def _check(self, scope: Scope) -> None:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        length = headers.get("content-length", "0")
        if not (length.isascii() and length.isdigit()):
            raise Refusal(400, "the length of the request is not a number")
        if int(length) > self.settings.max_bytes:
            raise Refusal(413, f"uploads may have {self.settings.max_megabytes:g} MB", Connection="close")
        path = scope["path"]
        if self.settings.token is None or path in OPEN or path.startswith("/static/"):
            return
        given = headers.get("authorization", "").removeprefix("Bearer ")
        if not hmac.compare_digest(given.encode(), self.settings.token.encode()):
            raise Refusal(401, "a token is needed: send it as 'Authorization: Bearer TOKEN'", WWW_Authenticate="Bearer")

    def _check_rate(self, scope: Scope) -> None:
        if not self.settings.rate:
            return
        client = (scope.get("client") or ("",))[0]
        now = time.monotonic()
        times = self.seen.setdefault(client, deque())
        self.seen.move_to_end(client)
        while len(self.seen) > CLIENTS:
            self.seen.popitem(last=False)
        while times and times[0] < now - 60:
            times.popleft()
        if len(times) >= self.settings.rate:
            raise Refusal(
                429, f"more than {self.settings.rate} requests a minute", Retry_After=str(int(61 - now + times[0]))
            )
        times.append(now)


class _Body:
    """The body of a request, bounded in size and time."""

    def __init__(self, receive: Receive, settings: Settings) -> None:
        self._receive, self.settings = receive, settings
        self.received = 0
        self.deadline = time.monotonic() + settings.timeout
        self.complete = False
        self.refusal: Refusal | None = None

    async def receive(self) -> Message:
        if self.complete:  # what comes now can only be that the client has gone
            return await self._receive()
        try:
            message = await asyncio.wait_for(self._receive(), max(0.0, self.deadline - time.monotonic()))
        except TimeoutError:
            self.refusal = Refusal(
                408, f"the request was not sent within {self.settings.timeout:g} s", Connection="close"
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


def _add_headers(message: MutableMapping[str, Any], path: str) -> None:
    present = {name.lower() for name, _ in message["headers"]}
    extra = dict(HEADERS)
    extra["cache-control"] = "no-cache" if path.startswith("/static/") else "no-store"
    message["headers"] = [
        *message["headers"],
        *((name.encode(), value.encode()) for name, value in extra.items() if name.encode() not in present),
    ]
