"""``mgcap serve``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mgcap.cli import options as o
from mgcap.cli.console import bars, data, guarded
from mgcap.errors import DataError
from mgcap.models import DEFAULT_MODEL


@guarded
def serve(
    model: Annotated[
        list[Path] | None,
        typer.Option(help="A model that train wrote, or ucmerced; may be repeated, first is default."),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen at; only this machine by default.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen at.", min=0, max=65535)] = 8000,
    token: Annotated[
        str | None, typer.Option(help="What clients must send; needed if others can reach it.", envvar="MGCAP_TOKEN")
    ] = None,
    max_megabytes: Annotated[float, typer.Option(help="Largest upload.", min=0.001)] = 64.0,
    max_megapixels: Annotated[float, typer.Option(help="Largest image.", min=0.001)] = 25.0,
    timeout: Annotated[float, typer.Option(help="Seconds to send a request, and to wait for it.", min=0.1)] = 60.0,
    queue: Annotated[int, typer.Option(help="Requests under way at once; more get 503.", min=1)] = 64,
    rate: Annotated[int, typer.Option(help="Requests a minute of one client, 0 for any number.", min=0)] = 0,
    open_to_all: Annotated[
        bool, typer.Option("--open-to-all", help="Listen to other machines without a token.")
    ] = False,
    engine: o.Engine = "auto",
    device: o.Device = "auto",
) -> None:
    """A web page and service: drop an image or a GeoTIFF, see what it shows, why, and where.

    Example: mgcap serve --model ucmerced --port 8000
    """
    try:
        import uvicorn

        from mgcap.serve.app import create_app
        from mgcap.serve.service import load_models
        from mgcap.serve.settings import Settings
    except ImportError as error:
        raise DataError("the service needs more packages: pip install 'mgcap[web]'") from error
    if host not in ("127.0.0.1", "localhost", "::1") and not token and not open_to_all:
        raise DataError(f"{host} can be reached by others: give a --token, or say --open-to-all")
    settings = Settings(
        token=token,
        max_megabytes=max_megabytes,
        max_megapixels=max_megapixels,
        timeout=timeout,
        queue=queue,
        rate=rate,
    )
    models = load_models(model or [DEFAULT_MODEL], device=device, engine=engine, progress=bars)
    config = uvicorn.Config(
        create_app(models, settings),
        host=host,
        port=port,
        log_level="warning",
        server_header=False,
        timeout_keep_alive=10,
        timeout_graceful_shutdown=int(settings.timeout),
        h11_max_incomplete_event_size=64 * 1024,
    )
    server = uvicorn.Server(config)
    data.print(f"http://{host}:{port} (models: {', '.join(models)}; stop with Ctrl+C)", markup=False)
    try:
        server.run()
    except KeyboardInterrupt:  # uvicorn has ended its requests and hands the signal on
        bars.say("stopped")
    if not server.started:
        raise DataError(f"the service could not listen at {host}:{port}; is another one there?")
