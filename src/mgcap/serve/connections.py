"""Connections with deadlines and in a bounded number, so that slow and idle clients cannot keep others out."""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
import time
from collections.abc import Callable
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from mgcap.serve.guard import HEADERS

#: Connections that are accepted in one go; between two goes the oldest idle ones make room.
ACCEPTED_TOGETHER = 32
#: Connections that the system lets wait until they are accepted.
WAITING_IN_SYSTEM = 1024
#: Seconds to send the head of a request in, that an idle connection is kept, and to take a part of an answer in.
HEAD_SECONDS, IDLE_SECONDS, STUCK_SECONDS = 10.0, 10, 10.0
#: Seconds that a connection may be silent or send before it is dropped for others.
SPARED_SECONDS = 1.0
#: Messages of the log in a minute; more are counted only.
LOG_LINES = 60


def open_files() -> int:
    """How many files and connections this process may have open."""
    try:
        import resource
    except ImportError:  # Windows
        return 8192
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft if 0 < soft < 1 << 20 else 1 << 20


class Connections:
    """All open connections; when there are too many, the longest silent goes.

    Args:
        most: Connections at once.
        on_bad: Called for each request that was not HTTP.
    """

    def __init__(self, most: int, on_bad: Callable[[], None]) -> None:
        self.most, self.on_bad = most, on_bad
        self.waiting: dict[Any, None] = {}  # for the head of a request, the longest first
        self.busy: dict[Any, None] = {}  # with a request that is received or answered, the oldest first
        self.stuck: dict[Any, None] = {}  # those of the busy whose client does not take its answer, the longest first

    def make_room(self) -> bool:
        """Drop a connection if there are too many: one that sends nothing, takes nothing, or is slow to send."""
        if len(self.waiting) + len(self.busy) < self.most:
            return True
        now = time.monotonic()
        silent = (own for own in self.waiting if now - own.since > SPARED_SECONDS)
        slow = (own for own in self.busy if own.cycle.more_body and now - own.since > SPARED_SECONDS)
        # those that have just come go last: an honest client has sent its request by then
        oldest = next(itertools.chain(silent, self.stuck, slow, self.waiting), None)
        if oldest is None:
            return False
        self.forget(oldest)
        oldest.transport.abort()
        return True

    def forget(self, connection: Any) -> None:
        """A connection that has ended."""
        for group in (self.waiting, self.busy, self.stuck):
            group.pop(connection, None)


class _Connection(H11Protocol):
    """One connection, with deadlines for what its client sends and takes."""

    together: Connections  # all of them; set in a class of its own for each service
    since = 0.0  # when it began to wait or to send
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        if not self.together.make_room():
            transport.abort()
            return
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        if self.transport is None or self.transport.is_closing():
            return
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete and self in self.together.waiting:
            del self.together.waiting[self]
            self.together.busy[self] = None
            self.since = time.monotonic()
            self._cancel()

    def on_response_complete(self) -> None:
        if self.conn.their_state is h11.DONE and self.conn.trailing_data[0]:
            # Requests that do not wait for answers would be served one after the other while all others wait; no
            # browser sends them. What is not taken of the answer until the deadline is thrown away.
            self._wait()
            self.transport.close()
        super().on_response_complete()
        if not self.transport.is_closing() and self.cycle.response_complete and self in self.together.busy:
            self._wait()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self in self.together.busy:
            self.together.stuck[self] = None
            self._cancel()
            self._deadline = self.loop.call_later(STUCK_SECONDS, self._late)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.together.stuck.pop(self, self) is None:
            self._cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        self.together.forget(self)
        self._cancel()
        if self.transport is not None:
            super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        self.together.on_bad()
        head = {**HEADERS, "content-type": "text/plain; charset=utf-8", "connection": "close"}
        fields = [(name.encode(), value.encode()) for name, value in head.items()]
        body = msg.encode()
        for event in (h11.Response(status_code=400, headers=fields), h11.Data(data=body), h11.EndOfMessage()):
            try:
                self.transport.write(self.conn.send(event) or b"")
            except h11.LocalProtocolError:  # the answer to an earlier request is under way
                break
        self.transport.close()

    def _wait(self) -> None:
        self.together.forget(self)
        self.together.waiting[self] = None
        self.since = time.monotonic()
        self._cancel()
        self._deadline = self.loop.call_later(HEAD_SECONDS, self._late)

    def _late(self) -> None:
        if self in self.together.waiting or self in self.together.stuck:
            self.together.forget(self)
            self.transport.abort()

    def _cancel(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def protocol_for(connections: Connections) -> type[H11Protocol]:
    """The class of connections for uvicorn."""
    return type("Connection", (_Connection,), {"together": connections})


class Server(uvicorn.Server):
    """A server that tells where it listens, and lets many connections wait in the system but takes few at once."""

    def __init__(self, config: uvicorn.Config, on_start: Callable[[int], None] = lambda port: None) -> None:
        super().__init__(config)
        self.on_start = on_start

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen."""
        await super().startup(sockets)
        listening = [own for server in getattr(self, "servers", ()) for own in server.sockets]
        for own in listening:
            with socket.socket(fileno=socket.dup(own.fileno())) as again:
                again.listen(WAITING_IN_SYSTEM)
        if listening:
            self.on_start(int(listening[0].getsockname()[1]))


class FewLines(logging.Filter):
    """Lets a bounded number of messages a minute into the log, so that nobody can fill a disk with it."""

    def __init__(self, lines: int = LOG_LINES) -> None:
        super().__init__()
        self.lines, self.count, self.dropped, self.start = lines, 0, 0, time.monotonic()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a message is written."""
        now = time.monotonic()
        if now - self.start >= 60:
            if self.dropped:
                record.msg = f"{record.getMessage()} ({self.dropped} messages before this one were not written)"
                record.args = None
            self.count, self.dropped, self.start = 0, 0, now
        self.count += 1
        self.dropped += self.count > self.lines
        return self.count <= self.lines


def bound_logs() -> None:
    """Let every log that strangers can write to grow slowly."""
    for name in ("python_multipart", "multipart"):  # complains of every malformed request, which gets its answer
        logging.getLogger(name).setLevel(logging.CRITICAL)
    few = FewLines()
    for name in ("uvicorn.error", "uvicorn.access", "asyncio", "mgcap.serve"):
        logging.getLogger(name).addFilter(few)


def server_config(app: Any, host: str, port: int, grace: float, on_bad: Callable[[], None]) -> uvicorn.Config:
    """Uvicorn's configuration for the service.

    Args:
        app: The application.
        host: Address to listen at.
        port: Port to listen at; 0 for any that is free.
        grace: Seconds to finish requests in when it is stopped.
        on_bad: Called for each request that was not HTTP.
    """
    connections = Connections(max(8, open_files() // 3), on_bad)
    return uvicorn.Config(
        app,
        host=host,
        port=port,
        http=protocol_for(connections),
        ws="none",
        log_level="critical",  # what it complains of is answered, and counted
        access_log=False,
        server_header=False,
        proxy_headers=False,  # the guard reads them, if the settings say so
        backlog=ACCEPTED_TOGETHER,
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=int(grace),
        h11_max_incomplete_event_size=64 * 1024,
    )
