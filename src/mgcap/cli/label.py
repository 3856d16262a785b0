"""``mgcap label``."""

from __future__ import annotations

import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mgcap.cli import rasters as r
from mgcap.cli.console import bars, data, guarded
from mgcap.cli.signature import expanded
from mgcap.errors import DataError

if TYPE_CHECKING:
    from mgcap.classifier import SceneClassifier
    from mgcap.labelling.preparing import Beginning
    from mgcap.labelling.project import Project
    from mgcap.serve.settings import Settings

Rasters = Annotated[
    list[str] | None, typer.Argument(help="GeoTIFF, JPEG 2000, PNG, JPEG and WebP files; none with --project alone.")
]


@guarded
@expanded
def label(
    context: typer.Context,
    options: r.RasterOptions,
    rasters: Rasters = None,
    project: Annotated[
        Path | None,
        typer.Option(help="Folder with the labels; default: here, as scene.labels. One that is there is continued."),
    ] = None,
    index: Annotated[
        list[Path] | None,
        typer.Option(help="Index of each raster, in their order; default: here, as scene.zarr, made if need be."),
    ] = None,
    classes: Annotated[
        str | None, typer.Option(help="Names of classes to begin with, as forest,housing; more can be added.")
    ] = None,
    from_model: Annotated[
        bool, typer.Option("--from-model", help="Begin with the classes and the map of the model, and correct these.")
    ] = False,
    block: Annotated[
        float | None,
        typer.Option(
            help="Side of the blocks of land that are held out together to say how right the map is, in metres; "
            "default: four tiles.",
            min=0.001,
        ),
    ] = None,
    labels: Annotated[
        list[Path] | None,
        typer.Option(
            help="Labels to begin with: .gpkg, .shp, .geojson, .parquet or .csv, or the labels.gpkg of a colleague.",
        ),
    ] = None,
    field: Annotated[str | None, typer.Option(help="Field of --labels with the class; default: class.")] = None,
    port: Annotated[
        int,
        typer.Option(help="Port to listen at; 0 takes that of the last time, or any that is free.", min=0, max=65535),
    ] = 0,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Print the address, and open no browser.")] = False,
) -> None:
    """Teach it your own classes on your own raster: click a few places, and the whole map follows.

    The page is served on this machine alone; nothing is uploaded. Labels are saved at every click, and the same command
    continues them. mgcap serve --project shares them with others.

    Example: mgcap label scene.tif --classes forest,housing,water
    """
    if not rasters and project is None:
        raise DataError("give a raster to label, or the --project to continue")
    if field is not None and not labels:
        raise DataError("--field names a field of --labels; give both")
    r.need_geo()
    need_web()
    files = options.files(rasters or [])
    from mgcap.labelling.preparing import Beginning, default_folder

    folder = (project or default_folder(files)).expanduser()
    sources = {name: context.get_parameter_source(name) for name in ("model", *options.values())}
    given = {name for name, source in sources.items() if source is not None and source.name != "DEFAULT"}
    asked = options.model if "model" in given else None
    base = Base(options, folder, asked)
    if files:
        _prepare(base, files, folder, index or [], Beginning(asked, from_model, block), given)
    elif index or from_model or block:
        raise DataError("--index, --from-model and --block are for a new project; give its raster too")
    elif asked is not None:
        base()  # says at once if it is another than the project's
    from mgcap.labelling.project import Project
    from mgcap.serve.labellers import port_for, tokens_for, user_name

    opened = Project(folder, options.allow_vrt)
    user = user_name()
    opened.add_missing([own.strip() for own in (classes or "").split(",") if own.strip()])
    for path in labels or []:
        _load(opened, path, field, user)
    from mgcap.serve.settings import Settings

    settings = Settings(people=tokens_for(folder, [user]))
    port = port or port_for(folder)
    serve_project(
        opened, base, settings, port, lambda url: _open(f"{url}/#token={next(iter(settings.people))}", no_browser)
    )


class Base:
    """The base model, loaded when it is first needed.

    Args:
        options: How to load it.
        folder: Of the project.
        given: The model that is asked for, if one is.
    """

    def __init__(self, options: r.RasterOptions, folder: Path, given: Path | None = None) -> None:
        self.options, self.folder, self.given = options, folder, given
        self._found: SceneClassifier | None = None

    def __call__(self) -> SceneClassifier:
        """The model; that of the project, where there is one."""
        from mgcap.labelling.preparing import base_model

        if self._found is None:
            self._found = base_model(self.folder, self.given, self._load, bars)
        return self._found

    def _load(self, model: Path) -> SceneClassifier:
        return r.load_model(model, self.options.add, self.options.device, self.options.engine)


def _prepare(
    base: Base, files: list[str | Path], folder: Path, indexes: list[Path], beginning: Beginning, given: set[str]
) -> None:
    """Make or complete the indexes, and let the project have the rasters."""
    from mgcap.labelling.preparing import prepare_project

    options = {name: value for name, value in base.options.values().items() if name in given}
    own = [path.expanduser() for path in indexes]
    with base.options.workers() as workers:
        prepare_project(base(), files, folder, options, beginning, own, workers, bars)


def _load(project: Project, path: Path, field: str | None, user: str) -> None:
    from mgcap.labelling.loading import load_labels
    from mgcap.serve.labellers import known_people

    found = load_labels(project, path, field, user, known_people(project.folder))
    left = "".join(f"; left out: {count} {why}" for why, count in found.left_out.items())
    conflicts = f", {found.conflicts} of them in conflict" if found.conflicts else ""
    bars.say(f"{path.name}: {found.labels} labels{conflicts}{left}")


def need_web() -> None:
    """Say so at once if what the page needs is not installed."""
    try:
        import fastapi  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise DataError("the page needs more packages: pip install 'mgcap[web]'") from error


def _open(url: str, no_browser: bool) -> None:
    data.print(f"{url} (stop with Ctrl+C; labels are saved at every click)", markup=False, soft_wrap=True)
    if not no_browser:
        try:
            webbrowser.open(url)
        except Exception:  # whatever browsers do; the address is printed
            bars.say("no browser could be opened; open the address yourself")


def serve_together(folder: Path, people: str | None, settings: Settings, port: int, options: r.RasterOptions) -> None:
    """Serve a project for several people, each with an address of their own.

    Args:
        folder: Of the project.
        people: Their names, with commas; by default those of the last time.
        settings: Of the service.
        port: To listen at.
        options: How to load the base model.
    """
    r.need_geo()
    from mgcap.labelling.project import Project
    from mgcap.serve.labellers import tokens_for

    project = Project(folder, options.allow_vrt)
    names = [own.strip() for own in (people or "").split(",") if own.strip()]
    own = settings.model_copy(update={"people": tokens_for(folder, names or [])})
    if not own.people:
        raise DataError("nobody has a token yet; name those who label with --people, as anna,ben")

    def tell(url: str) -> None:
        for token, name in own.people.items():
            data.print(f"{name}: {url}/#token={token}", markup=False, soft_wrap=True)
        bars.say("each address is for one person; stop with Ctrl+C, labels are saved at every click")

    serve_project(project, Base(options, folder), own, port, tell)


def serve_project(project: Project, base: Base, settings: Settings, port: int, tell: Callable[[str], None]) -> None:
    """Serve a project until it is stopped.

    Args:
        project: Open.
        base: Gives the base model.
        settings: Of the service.
        port: To listen at.
        tell: Takes the address.
    """
    from mgcap.labelling.live import Live
    from mgcap.serve.addresses import address_of, reach_of
    from mgcap.serve.connections import Server, bound_logs, server_config
    from mgcap.serve.labellers import keep_port, user_name
    from mgcap.serve.labelling import create_label_app

    with bars("Opening the project", None):
        live = Live(project, base)
        app = create_label_app(live, user_name(), settings)
    bound_logs()
    config = server_config(app, settings.host, port, 4, lambda: None)

    def listens(at: int) -> None:
        keep_port(project.folder, at)
        tell(address_of(settings.host, at))
        if reach := reach_of(settings.host, at):
            bars.say(reach)

    server = Server(config, listens)
    try:
        server.run()
    except KeyboardInterrupt:  # uvicorn has ended its requests and hands the signal on
        pass
    except SystemExit:  # it could not listen
        pass
    finally:
        app.state.service.close()
    if not server.started:
        raise DataError(
            f"the page could not be served at {settings.host}:{port}; is another one there? (--port takes another)"
        )
    bars.say(f"stopped; the labels are in {project.folder}, and the same command continues them")
