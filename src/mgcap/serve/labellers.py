"""The people who label a project together: each has a token, which stays the same when the service is started again."""

from __future__ import annotations

import getpass
import json
import os
import secrets
import socket
import tempfile
from collections.abc import Sequence
from pathlib import Path

from fastapi import Request

from mgcap.errors import DataError
from mgcap.labelling.classes import clean_name
from mgcap.persistence.files import write_json

_FILE, _PORT = "people.json", "port.json"


def user_name() -> str:
    """Who sits at this machine."""
    try:
        return clean_name(getpass.getuser())
    except (OSError, KeyError, DataError):  # a container's user may have no name
        return "me"


def person_of(request: Request, user: str) -> str:
    """Who asks."""
    return str(request.scope.get("state", {}).get("person") or user)


def tokens_for(folder: Path, names: Sequence[str]) -> dict[str, str]:
    """The token of each person of a project, with names by tokens; new ones are kept in the project for the next time.

    Args:
        folder: Of the project.
        names: Of the people; all who had a token before if there are none.
    """
    path = folder / _FILE
    known = _read(path)
    wanted = [clean_name(name) for name in names] or list(known)
    for name in wanted:
        known.setdefault(name, secrets.token_urlsafe(24))
    _write(path, known)
    return {known[name]: name for name in wanted}


def known_people(folder: Path) -> list[str]:
    """Names of those who have a token of a project."""
    return list(_read(folder / _FILE))


def port_for(folder: Path, host: str = "127.0.0.1") -> int:
    """The port that a project was served at last, if it is free, else 0 for any: a page that is open finds it again."""
    try:
        port = json.loads((folder / _PORT).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):  # it is a convenience only
        return 0
    if not isinstance(port, int) or not 0 < port < 1 << 16:
        return 0
    with socket.socket() as tried:
        if os.name == "posix":  # connections of the last time may linger
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((host, port))
        except OSError:
            return 0
    return port


def keep_port(folder: Path, port: int) -> None:
    """Remember at which port a project is served."""
    write_json(folder / _PORT, port)


def _read(path: Path) -> dict[str, str]:
    if not path.exists():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(found, dict) or not all(isinstance(own, str) and len(own) >= 8 for own in found.values()):
            raise ValueError("it is no table of tokens")
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path} is damaged; remove it to get new tokens") from error
    return found


def _write(path: Path, tokens: dict[str, str]) -> None:
    """For nobody else to read, from the first byte on."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # with 0600
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(tokens, file, indent=1)
        Path(name).replace(path)
    finally:
        Path(name).unlink(missing_ok=True)
