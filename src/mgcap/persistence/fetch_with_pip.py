"""Run by itself, in a process of its own: downloads one file of a project by pip's finder and session.

The index, the links, the proxies, the certificates and the credentials are those that the user has set up for pip.
Unlike ``pip download`` this only copies the file: a source distribution is not unpacked, and no code of it is run.
pip's modules are no public interface, so whatever they raise becomes one line, and the caller checks the file.
"""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from typing import Any

BLOCK = 1 << 20


def _links(command: Any, options: Any, session: Any, project: str, version: str) -> list[Any]:
    """Where pip finds this version of the project."""
    finder = command._build_package_finder(options=options, session=session, ignore_requires_python=True)
    return [found.link for found in finder.find_all_candidates(project) if str(found.version) == version]


def _save(session: Any, link: Any, target: Path, max_bytes: int) -> None:
    reply = session.get(link.url.split("#", 1)[0], headers={"Accept-Encoding": "identity"}, stream=True)
    if reply.status_code != 200:
        raise RuntimeError(f"the index answered {reply.status_code} for {link.filename}")
    raw, received = reply.raw, 0
    # what came over the network must not be unpacked on the way; what is on disk is an ordinary file
    how = {"decode_content": False} if hasattr(raw, "stream") else {}
    with target.open("wb") as file:
        while block := raw.read(BLOCK, **how):
            received += len(block)
            if received > max_bytes:
                raise RuntimeError(f"{link.filename} has more than {max_bytes} bytes")
            file.write(block)


def main(project: str, version: str, suffix: str, sha256: str, target: str, max_bytes: str) -> None:
    """Save the file of the project's version that ends with ``suffix``; one that states our hash goes first."""
    command = importlib.import_module("pip._internal.commands").create_command("download")
    kind = "--only-binary" if suffix == ".whl" else "--no-binary"
    options, _ = command.parse_args(["--no-input", "--disable-pip-version-check", kind, project])
    with command.main_context():
        session = command.get_default_session(options)
        links = _links(command, options, session, project, version)
        links = [link for link in links if link.filename.endswith(suffix)]
        if not links:
            raise RuntimeError(f"pip finds no {suffix} of {project} {version}")
        _save(session, max(links, key=lambda link: link.hash == sha256), Path(target), int(max_bytes))


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except Exception as error:
        sentence = re.sub(r"//[^/\s@]+@", "//", " ".join(str(error).split()))  # no password of an index in a message
        sys.exit(f"ERROR: {sentence or type(error).__name__}")
