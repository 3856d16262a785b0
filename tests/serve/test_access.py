"""Host, origin and token: who may ask."""

from __future__ import annotations

import ipaddress
from typing import Any

import httpx
import pytest

from mgcap.serve import access
from mgcap.serve.access import Access, Clients, client_of, host_name
from mgcap.serve.addresses import address_of, reach_of
from mgcap.serve.refusals import Refusal
from mgcap.serve.settings import Settings
from tests.serve.conftest import Start


def _scope(path: str = "/api/models", method: str = "GET", **headers: str) -> dict[str, Any]:
    fields = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return {"type": "http", "path": path, "method": method, "headers": fields, "client": ("127.0.0.1", 5)}


def _status(settings: dict[str, Any], **request: str) -> int:
    try:
        Access(Settings.model_validate(settings)).check(_scope(**request))
    except Refusal as refusal:
        return refusal.status
    return 200


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("localhost", 200), ("LOCALHOST:8000", 200), ("127.0.0.1:8000", 200), ("[::1]:8000", 200), ("localhost.", 200),
        ("evil.example", 421), ("127.0.0.1.evil.example", 421), ("localhost.evil.example:8000", 421), ("", 421),
        ("10.0.0.5", 421), ("evil.example@localhost", 421), ("[::2]", 421),
    ],
)  # fmt: skip
def test_only_names_of_this_machine(host: str, expected: int) -> None:
    assert _status({}, host=host) == expected
    assert _status({}, path="/health", host=host) == expected  # a page of another name learns nothing


def test_names_that_the_options_give() -> None:
    assert _status({"host": "192.168.7.7"}, host="192.168.7.7:80") == 200
    assert _status({"host": "0.0.0.0"}, host="10.1.2.3:8000") == 200  # a number cannot be bound to another machine
    assert _status({"host": "0.0.0.0"}, host="evil.example") == 421
    assert _status({"host": "::"}, host="[fe80::1]:8000") == 200
    maps = {"allow_origins": ["https://maps.example.org"]}
    assert _status(maps, host="maps.example.org") == 200
    assert _status(maps, host="maps.example.org.evil.example") == 421


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, 200),
        ({"origin": "http://localhost:8000"}, 200),
        ({"origin": "https://localhost:8000"}, 200),
        ({"origin": "http://localhost:9000"}, 403),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "https://maps.example.org"}, 200),
        ({"origin": "http://maps.example.org"}, 403),
        ({"sec_fetch_site": "cross-site"}, 403),
        ({"sec_fetch_site": "same-site"}, 403),
        ({"sec_fetch_site": "same-origin"}, 200),
        ({"sec_fetch_site": "none"}, 200),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_pages_of_other_sites_are_refused(headers: dict[str, str], expected: int, method: str) -> None:
    settings = {"allow_origins": ["https://maps.example.org"]}
    assert _status(settings, method=method, host="localhost:8000", **headers) == expected


def test_two_hosts_or_origins_are_refused() -> None:
    own = Access(Settings())
    for name, status in ((b"host", 421), (b"origin", 403)):
        scope = _scope(host="localhost", origin="http://localhost")
        scope["headers"].append((name, b"localhost"))
        with pytest.raises(Refusal) as refused:
            own.check(scope)
        assert refused.value.status == status


def test_wrong_tokens_are_throttled(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(access.time, "monotonic", lambda: now)
    own = Access(Settings(token="sesame"))

    def status(**headers: str) -> int:
        try:
            own.check(_scope(host="localhost", **headers))
        except Refusal as refusal:
            return refusal.status
        return 200

    assert [status(authorization="Bearer wrong") for _ in range(12)] == [401] * 10 + [429] * 2
    assert status(authorization="Bearer sesame") == 429  # or the answer would tell which guess was right
    assert status() == 401  # nothing was guessed
    now += 61
    assert status(authorization="Bearer sesame") == 200
    assert status(authorization="bearer sesame") == 200
    assert [status() for _ in range(30)] == [401] * 30


def test_forwarded_addresses_count_behind_a_proxy_only() -> None:
    scope = _scope(x_forwarded_for="1.1.1.1, 2.2.2.2")
    assert client_of(scope, proxied=False) == "127.0.0.1"
    assert client_of(scope, proxied=True) == "2.2.2.2"  # the first one is whatever the client says
    assert client_of(_scope(), proxied=True) == "127.0.0.1"


def test_clients_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "CLIENTS", 5)
    clients = Clients()
    for number in range(20):
        clients.add(str(number))
    assert [clients.recent(str(n)) for n in (0, 14, 15, 19)] == [0, 0, 1, 1]


def test_host_names() -> None:
    assert [host_name(h) for h in ("A.b:1", "[::1]:80", "x", "x.:9")] == ["a.b", "[::1]", "x", "x"]


def test_the_service_answers_to_its_names_and_pages_only(start: Start) -> None:
    url = start(token="sesame", allow_origins=["https://maps.example.org"])
    evil = httpx.get(f"{url}/", headers={"Host": "evil.example"})
    assert evil.status_code == 421
    assert evil.headers["x-frame-options"] == "DENY"
    key = {"Authorization": "Bearer sesame"}
    crossed = httpx.post(f"{url}/api/predict", headers={**key, "Origin": "http://evil.example"}, files={"file": b"x"})
    assert crossed.status_code == 403
    assert "access-control-allow-origin" not in crossed.headers
    friend = {"Origin": "https://maps.example.org"}
    asked = httpx.options(f"{url}/api/predict", headers={**friend, "Access-Control-Request-Method": "POST"})
    assert asked.status_code == 204
    assert asked.headers["access-control-allow-origin"] == "https://maps.example.org"
    assert "authorization" in asked.headers["access-control-allow-headers"]
    allowed = httpx.get(f"{url}/api/models", headers={**key, **friend})
    assert allowed.status_code == 200
    assert allowed.headers["access-control-allow-origin"] == "https://maps.example.org"
    counted = httpx.get(f"{url}/metrics", headers=key).text
    assert 'status="421"} 1.0' in counted and 'status="403"} 1.0' in counted


def test_the_address_that_is_told_is_one_that_others_can_open_and_that_is_answered() -> None:
    assert address_of("127.0.0.1", 80) == "http://127.0.0.1:80" and address_of("::1", 80) == "http://[::1]:80"
    assert reach_of("127.0.0.1", 80) == ""
    for host in ("0.0.0.0", "::", ""):
        shown = address_of(host, 8000).removeprefix("http://")
        own = ipaddress.ip_address(shown.removesuffix(":8000").strip("[]"))
        assert not own.is_unspecified and own.version == (6 if ":" in host else 4)
        assert _status({"host": host}, host=shown) == 200
        assert shown in reach_of(host, 8000)
