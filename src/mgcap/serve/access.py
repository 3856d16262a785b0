"""Who may ask: by the name that the service was called by, the page that asks, and the token."""

from __future__ import annotations

import hmac
import ipaddress
import time
from collections import OrderedDict, deque
from urllib.parse import urlsplit

from starlette.types import Scope

from mgcap.serve.refusals import Refusal
from mgcap.serve.settings import Settings

#: What anyone may see: the page itself, and whether the service is up.
OPEN = ("/", "/health", "/docs", "/favicon.ico")
#: Names of this machine that nobody else can give to another.
LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
#: Addresses that mean every network of this machine.
WILDCARDS = ("0.0.0.0", "::", "")  # noqa: S104 (compared, not listened at)
#: Clients that are remembered; the longest silent are forgotten first.
CLIENTS = 10_000
#: Wrong tokens of one client in a minute; from then on it is not listened to for a while.
WRONG_TOKENS = 10


class Clients:
    """How often each client did something in the last minute."""

    def __init__(self) -> None:
        self._times: OrderedDict[str, deque[float]] = OrderedDict()

    def recent(self, client: str) -> int:
        """How often within the last minute."""
        times = self._times.get(client)
        if times is None:
            return 0
        while times and times[0] < time.monotonic() - 60:
            times.popleft()
        return len(times)

    def add(self, client: str) -> None:
        """Once more."""
        self._times.setdefault(client, deque()).append(time.monotonic())
        self._times.move_to_end(client)
        while len(self._times) > CLIENTS:
            self._times.popitem(last=False)

    def seconds_left(self, client: str) -> int:
        """Until the first of these times is more than a minute ago."""
        times = self._times.get(client)
        return max(1, int(61 - time.monotonic() + times[0])) if times else 1


def header_values(scope: Scope, name: bytes) -> list[str]:
    """All values of a header."""
    return [value.decode("latin-1").strip() for key, value in scope["headers"] if key == name]


def client_of(scope: Scope, proxied: bool) -> str:
    """The address of a client; behind a proxy the one that the proxy saw, which it put last."""
    if proxied and (forwarded := header_values(scope, b"x-forwarded-for")):
        return forwarded[-1].rsplit(",", 1)[-1].strip()[:100]
    return str((scope.get("client") or ("",))[0])


def host_name(host: str) -> str:
    """The name in a Host header, without its port, in small letters."""
    host = host.strip().lower()
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0].rstrip(".")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


class Access:
    """Checks host, origin and token.

    Args:
        settings: What is allowed.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.origins = {origin.rstrip("/").lower() for origin in settings.allow_origins}
        own = settings.host.strip("[]").lower()
        self.any_address = own in WILDCARDS
        self.hosts = {*LOOPBACK, f"[{own}]" if ":" in own else own}
        self.hosts |= {host_name(urlsplit(origin).netloc) for origin in self.origins}
        self.wrong = Clients()
        self._tokens = {token.encode(): name for token, name in settings.people.items()}
        if settings.token is not None:
            self._tokens[settings.token.encode()] = ""

    def check(self, scope: Scope) -> None:
        """Refuse a request that does not come from where it may, or lacks the token."""
        self._check_host(scope)
        path = scope["path"]
        if path == "/health":
            return
        self._check_origin(scope)
        if not self._tokens or path in OPEN or path.startswith("/static/") or scope["method"] == "OPTIONS":
            return
        self._check_token(scope)

    def allowed_origin(self, scope: Scope) -> str | None:
        """The origin of a request if it is one of those that the settings name."""
        given = header_values(scope, b"origin")
        return given[0] if len(given) == 1 and given[0].lower() in self.origins else None

    def _check_host(self, scope: Scope) -> None:
        given = header_values(scope, b"host")
        name = host_name(given[0]) if len(given) == 1 else ""
        if name in self.hosts or (self.any_address and _is_address(name)):
            return
        raise Refusal(
            421, "the service does not answer to this host name; who runs it can allow that", Connection="close"
        )

    def _check_origin(self, scope: Scope) -> None:
        """A page of another site may neither send nor read anything here."""
        given = header_values(scope, b"origin")
        if len(given) > 1:
            raise Refusal(403, "pages of other sites may not use this service")
        if given:
            own = {f"{scheme}://{host}" for scheme in ("http", "https") for host in header_values(scope, b"host")}
            if given[0].lower() not in self.origins | {name.lower() for name in own}:
                raise Refusal(403, "pages of other sites may not use this service; who runs it can allow them")
            return
        site = header_values(scope, b"sec-fetch-site")
        if scope["path"].startswith("/api/") and site and site[0] in ("cross-site", "same-site"):
            raise Refusal(403, "pages of other sites may not use this service; who runs it can allow them")

    def _check_token(self, scope: Scope) -> None:
        client = client_of(scope, self.settings.proxy_headers)
        given = (header_values(scope, b"authorization") or [""])[0]
        if given and self.wrong.recent(client) >= WRONG_TOKENS:
            wait = self.wrong.seconds_left(client)
            raise Refusal(429, "too many wrong tokens; try again in a minute", Retry_After=str(wait))
        scheme, _, rest = given.partition(" ")
        token = rest.strip() if scheme.lower() == "bearer" else given
        same = [name for known, name in self._tokens.items() if hmac.compare_digest(token.encode(), known)]
        if same:
            scope.setdefault("state", {})["person"] = same[0]
            return
        if given:
            self.wrong.add(client)
            raise Refusal(401, "the token is wrong; the service printed it when it started", WWW_Authenticate="Bearer")
        raise Refusal(401, "a token is needed: send it as 'Authorization: Bearer TOKEN'", WWW_Authenticate="Bearer")
