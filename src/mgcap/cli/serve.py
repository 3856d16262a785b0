"""``mgcap serve``."""

from __future__ import annotations

import os
import re
import secrets
from pathlib import Path
from typing import Annotated

import typer

from mgcap.cli import completion as c
from mgcap.cli import options as o
from mgcap.cli import rasters as r
from mgcap.cli.console import bars, data, guarded
from mgcap.cli.label import serve_together
from mgcap.cli.signature import expanded
from mgcap.errors import DataError
from mgcap.persistence.shipped import DEFAULT_MODEL

#: A token that someone chose must be longer than what can be guessed.
SHORTEST_TOKEN = 8


@guarded
@expanded
def serve(
    model: Annotated[
        list[Path] | None,
        typer.Option(
            help="A model that mgcap train wrote, or ucmerced; may be repeated, the first is the default.",
            autocompletion=c.models,
        ),
    ] = None,
    project: Annotated[
        Path | None,
        typer.Option(help="A folder of mgcap label: serve its page instead, so that several people label one project."),
    ] = None,
    people: Annotated[
        str | None,
        typer.Option(
            help="Names of those who label, as anna,ben; each gets an address. Default: all of the last time."
        ),
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen at, as 0.0.0.0; by default only this machine can reach it.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen at; 0 takes any that is free.", min=0, max=65535)] = 8000,
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(help="A site that may use the service, as https://maps.example.org; may be repeated."),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(help="File with the token that clients must send; default: $MGCAP_TOKEN, or a new token."),
    ] = None,
    no_token: Annotated[bool, typer.Option("--no-token", help="Let in everyone who reaches the address.")] = False,
    proxy_headers: Annotated[
        bool, typer.Option("--proxy-headers", help="A proxy stands before it: X-Forwarded-For names the client.")
    ] = False,
    max_megabytes: Annotated[float, typer.Option(help="Largest upload in megabytes.", min=0.001)] = 128.0,
    max_megapixels: Annotated[
        float, typer.Option(help="Largest image in megapixels, and all large images at once.", min=0.001)
    ] = 25.0,
    timeout: Annotated[
        float, typer.Option(help="Number of seconds to send a request, and to wait for its answer.", min=0.1)
    ] = 60.0,
    queue: Annotated[int, typer.Option(help="Number of requests at once; more get the answer 503.", min=1)] = 64,
    rate: Annotated[
        int, typer.Option(help="Number of requests a minute of one client; 0 allows any number.", min=0)
    ] = 0,
    token: Annotated[
        str | None, typer.Option(help="Refused, as others can read the command line: give --token-file.", hidden=True)
    ] = None,
    add: o.Add = None,
    engine: o.Engine = "auto",
    device: o.Device = "auto",
) -> None:
    """A web page and service: drop an image or a GeoTIFF, see what it shows, why, and where.

    The address that it prints holds the token; open it in a browser. Programs send the token as a header.

    Example: mgcap serve --model ucmerced --port 8000

    Labelling together: mgcap serve --project scene.labels/ --people anna,ben --host 0.0.0.0
    """
    try:
        from mgcap.serve.addresses import address_of, reach_of
        from mgcap.serve.app import create_app
        from mgcap.serve.connections import Server, bound_logs, open_files, server_config
        from mgcap.serve.service import load_models
        from mgcap.serve.settings import ORIGIN, Settings
    except ImportError as error:
        raise DataError("the service needs more packages: pip install 'mgcap[web]'") from error
    if token is not None:
        raise DataError(
            "a token on the command line can be read by every user of this machine; "
            "give it in MGCAP_TOKEN or --token-file"
        )
    if no_token and (token_file is not None or "MGCAP_TOKEN" in os.environ):
        raise DataError("a token was given, and --no-token too; leave out one of them")
    for origin in allow_origin or ():
        if not re.fullmatch(ORIGIN, origin):
            raise DataError(f"--allow-origin takes a site, as https://maps.example.org, not '{origin}'")
    if no_token and host not in ("127.0.0.1", "localhost", "::1"):
        bars.say(f"--no-token: everyone who reaches {host} can use this service")
    if people is not None and project is None:
        raise DataError("--people names those who label a --project; give both")
    if project is not None and (model or no_token or token_file):
        raise DataError("--project has its own model, and a token for each person; leave out --model and the token")
    settings = Settings(
        host=host,
        allow_origins=tuple(allow_origin or ()),
        token=None if no_token or project is not None else _token(token_file),
        proxy_headers=proxy_headers,
        max_megabytes=max_megabytes,
        max_megapixels=max_megapixels,
        timeout=timeout,
        queue=min(queue, max(4, open_files() // 8)),
        rate=rate,
    )
    if project is not None:
        serve_together(
            project.expanduser(), people, settings, port, r.RasterOptions(add=add, engine=engine, device=device)
        )
        return
    o.run_added(add)
    models = load_models(model or [DEFAULT_MODEL], device=device, engine=engine, progress=bars)
    app = create_app(models, settings)

    def tell(port: int) -> None:
        secret = f"/#token={settings.token}" if settings.token else ""
        data.print(
            f"{address_of(host, port)}{secret} (models: {', '.join(models)}; stop with Ctrl+C)",
            markup=False,
            soft_wrap=True,
        )
        if reach := reach_of(host, port):
            bars.say(reach)

    bound_logs()
    server = Server(server_config(app, host, port, settings.timeout, app.state.service.count_bad), tell)
    try:
        server.run()
    except KeyboardInterrupt:  # uvicorn has ended its requests and hands the signal on
        bars.say("stopped")
    except SystemExit:  # it could not listen
        pass
    if not server.started:
        raise DataError(f"the service could not listen at {host}:{port}; is another one there? (--port takes another)")


def _token(file: Path | None) -> str:
    """The token of a file or of the environment, or a new one."""
    if file is None and "MGCAP_TOKEN" not in os.environ:
        return secrets.token_urlsafe(24)
    where = str(file) if file is not None else "MGCAP_TOKEN"
    found = (file.expanduser().read_text() if file is not None else os.environ["MGCAP_TOKEN"]).strip()
    if len(found) < SHORTEST_TOKEN or not found.isascii() or not found.isprintable() or " " in found:
        raise DataError(
            f"the token in {where} must be one word of {SHORTEST_TOKEN} or more ASCII letters, digits and signs"
        )
    return found
