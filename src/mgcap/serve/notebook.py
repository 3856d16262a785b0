"""The page of labelling from Python and notebooks: served by a thread of this process, until it is closed."""

from __future__ import annotations

import html
import inspect
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from mgcap.classifier import SceneClassifier
from mgcap.errors import DataError, check_parameters
from mgcap.geo.plan import MapOptions
from mgcap.labelling.live import Live
from mgcap.labelling.loading import load_labels
from mgcap.labelling.preparing import Beginning, base_model, default_folder, prepare_project
from mgcap.labelling.project import Project
from mgcap.labelling.rasters import vectors_of
from mgcap.labelling.saving import taught
from mgcap.serve.connections import Server, server_config
from mgcap.serve.labellers import keep_port, known_people, port_for, tokens_for, user_name
from mgcap.serve.labelling import create_label_app
from mgcap.serve.settings import Settings

#: Seconds that a page may take to be served.
PATIENCE = 30.0


class Labelling:
    """A page that is served.

    Attributes:
        url: Open it in a browser of this machine; it holds the token.
        folder: Of the project: labels are saved there at every click.
    """

    def __init__(self, live: Live, port: int) -> None:
        self._live, self.folder = live, live.project.folder
        user = user_name()
        settings = Settings(people=tokens_for(self.folder, [user]))
        self._app = create_label_app(live, user, settings)
        config = server_config(self._app, settings.host, port, 4, lambda: None)
        self._server = Server(config, lambda at: keep_port(self.folder, at))
        self._thread = threading.Thread(target=self._serve, name="label", daemon=True)
        self._thread.start()
        start = time.monotonic()
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() - start > PATIENCE:
                self.close()
                raise DataError(f"the page could not be served at {settings.host}:{port}; is another one there?")
            time.sleep(0.02)
        at = self._server.servers[0].sockets[0].getsockname()[1]
        self.url = f"http://{settings.host}:{at}/#token={next(iter(settings.people))}"

    def _serve(self) -> None:
        with suppress(SystemExit):  # it could not listen
            self._server.run()

    def classifier(self) -> SceneClassifier:
        """The model that the labels make now."""
        return taught(self._live)

    def labels(self) -> Any:
        """The labels as a GeoDataFrame."""
        import geopandas

        return geopandas.read_file(self.folder / "labels.gpkg", layer="labels")

    def close(self) -> None:
        """Stop serving; the same call continues the labels."""
        self._server.should_exit = True
        self._thread.join(PATIENCE)
        self._app.state.service.close()

    def __enter__(self) -> Labelling:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _repr_html_(self) -> str:
        """A link: the page refuses to be shown within others."""
        where = html.escape(self.url)
        return f'<a href="{where}" target="_blank" rel="noopener">Label {html.escape(self.folder.name)}</a>'


def label(
    rasters: str | Path | Sequence[str | Path] = (),
    project: str | Path | None = None,
    *,
    index: str | Path | Sequence[str | Path] = (),
    beginning: Beginning | None = None,
    classes: str | Sequence[str] = (),
    labels: Any = (),
    field: str | None = None,
    port: int = 0,
    **options: Any,
) -> Labelling:
    """Serve the page of ``mgcap label`` for rasters of this machine, while Python goes on.

    Args:
        rasters: To label; they are indexed first, if they are not yet. None continues a project with those that it has.
        project: Folder with the labels; by default ``scene.labels`` where the program runs.
        index: Of each raster; by default that of the first time, or ``scene.zarr`` where the program runs.
        beginning: What a new project begins with; by default the shipped model's descriptors and none of its classes.
        classes: Names of classes that there shall be, also as ``"forest,housing"``.
        labels: To load: vector files or GeoDataFrames, one or several.
        field: Of the labels, with the class; by default ``class``.
        port: To listen at; 0 takes that of the last time, or any that is free.
        **options: Of :class:`mgcap.geo.plan.MapOptions`.

    Raises:
        DataError: If there is nothing to label, or the page cannot be served.
    """
    files, given = _several(rasters), _several(labels)
    if not files and project is None:
        raise DataError("give a raster to label, or the `project` to continue")
    check_parameters("label", options, [*MapOptions.__dataclass_fields__, *inspect.signature(label).parameters])
    if not files:
        new = {"index": _several(index), "beginning": beginning, **options, "allow_vrt": None}
        if useless := next((name for name, value in new.items() if value not in (None, [])), None):
            raise DataError(f"`{useless}` is for rasters; give those of the project too")
    if field is not None and not given:
        raise DataError("`field` names a field of `labels`; give both")
    folder = Path(project) if project is not None else default_folder(files)
    beginning = beginning or Beginning()
    base = cache(partial(base_model, folder, beginning.model, SceneClassifier.load))
    if files:
        prepare_project(base(), files, folder, options, beginning, [Path(own) for own in _several(index)])
    opened = Project(folder, bool(options.get("allow_vrt", False)))
    names = classes.split(",") if isinstance(classes, str) else classes
    opened.add_missing([name.strip() for name in names if name.strip()])
    for own in given:
        _load(opened, own, field)
    return Labelling(Live(opened, base), port or port_for(folder))


def _several(given: Any) -> list[Any]:
    one = isinstance(given, str) or hasattr(given, "geometry") or not isinstance(given, Iterable)
    return [given] if one else list(given)


def _load(project: Project, labels: Any, field: str | None) -> None:
    """Take the labels of a file, or of a table of geopandas."""
    if isinstance(labels, str | Path):
        load_labels(project, labels, field, user_name(), known_people(project.folder))
        return
    import geopandas

    field = field or "class"
    found = vectors_of(labels, field)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "table.gpkg"
        geopandas.GeoDataFrame(found.columns, geometry=found.geometries, crs=found.crs).to_file(path)
        load_labels(project, path, field, user_name())
