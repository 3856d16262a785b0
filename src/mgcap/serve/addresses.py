"""The address at which a service is opened."""

from __future__ import annotations

import socket
from contextlib import suppress

from mgcap.serve.access import WILDCARDS

#: Addresses of no machine: the way towards them leads through the network of this one, and nothing is sent.
_OUTSIDE = {socket.AF_INET: "192.0.2.1", socket.AF_INET6: "2001:db8::1"}


def address_of(host: str, port: int) -> str:
    """The address to open, of this machine in its network where a service listens at all of its addresses.

    It is a number, as names that mean this machine to others only could be given to it by anybody.
    """
    if host in WILDCARDS:
        host = _own(socket.AF_INET6 if ":" in host else socket.AF_INET)
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def reach_of(host: str, port: int) -> str:
    """How others reach a service that listens at all addresses of this machine, in a line; nothing for others."""
    if host not in WILDCARDS:
        return ""
    return f"others in the network of this machine reach it at {address_of(host, port)}, if no firewall keeps them out"


def _own(family: socket.AddressFamily) -> str:
    """Where this machine is in its network; itself, if it is in none."""
    with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as own:
        own.connect((_OUTSIDE[family], 9))
        return str(own.getsockname()[0])
    return "::1" if family == socket.AF_INET6 else "127.0.0.1"
