from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mgcap.classifier import SceneClassifier
from mgcap.errors import DataError, RasterError
from mgcap.labelling.about import ChosenOptions, ProjectRaster, create_project, is_project, read_about
from mgcap.labelling.preparing import Beginning, base_model, chosen_again, default_folder, prepare_project
from mgcap.runtime import Progress
from tests.labelling.projects import make_project


def test_options_of_the_first_time_are_taken_again_and_other_cells_refused() -> None:
    first = {"cells": 2, "tile": "50px", "bands": (4, 3, 2), "scale": "0,3000"}
    own = ProjectRaster(raster="a.tif", index="a.zarr", chosen=ChosenOptions.model_validate(first))
    assert chosen_again(own, {}) == {**first, "min_valid": 0.5}
    assert chosen_again(own, {"cells": 2, "scale": "auto"}) == {**first, "min_valid": 0.5, "scale": "auto"}
    assert chosen_again(None, {"cells": 3}) == {"cells": 3}
    for given in ({"cells": 4}, {"tile": None}, {"cells": 4, "tile": "60px"}):
        with pytest.raises(DataError, match=r"labels of a\.tif are for the cells of the first time; leave out `"):
            chosen_again(own, given)


def test_a_new_project_has_the_classes_of_the_model_and_one_that_is_there_goes_on(
    model_file: Path, picture: Any, write_raster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    raster = write_raster(np.asarray(picture))
    base = SceneClassifier.load(model_file, engine="torch")
    folder = default_folder([raster])
    assert folder == Path("scene.labels")
    prepare_project(base, [raster], folder, {"cells": 2}, Beginning(model_file, from_model=True))
    about = read_about(folder)
    assert [own.name for own in about.classes] == base.classes_.tolist() and about.prior
    assert (folder / about.rasters[0].index).resolve() == (tmp_path / "scene.zarr").resolve()
    assert (folder / about.model).resolve() == model_file.resolve()
    prepare_project(base, [raster], folder, {}, Beginning("another"))
    assert read_about(folder) == about
    with pytest.raises(DataError, match="leave out `cells`"):
        prepare_project(base, [raster], folder, {"cells": 1}, Beginning(model_file))


def test_rasters_with_and_without_a_place_make_no_project(picture: Any, write_raster: Any, tmp_path: Path) -> None:
    placed = write_raster(np.asarray(picture))
    bare = write_raster(np.asarray(picture), "bare.tif", crs=None)
    with pytest.raises(RasterError, match=r"bare\.tif does not say where it lies, and others do"):
        prepare_project(SceneClassifier(), [placed, bare], tmp_path / "p", {}, Beginning())
    assert not is_project(tmp_path / "p") and not list(tmp_path.glob("**/*.zarr"))
    project = make_project(tmp_path)
    with pytest.raises(RasterError, match=r"bare\.tif does not say where it lies, and others do"):
        prepare_project(SceneClassifier(), [bare], project.folder, {}, Beginning())
    assert len(read_about(project.folder).rasters) == 1 and not list(tmp_path.glob("**/bare.zarr"))


def test_the_side_of_blocks_is_that_of_the_beginning_and_no_smaller_than_a_cell(
    model_file: Path, picture: Any, write_raster: Any, tmp_path: Path
) -> None:
    raster, folder, said = write_raster(np.asarray(picture)), tmp_path / "p", []
    base = SceneClassifier.load(model_file, engine="torch")

    def prepare(block: float | None) -> None:
        progress = _Told(said)
        beginning = Beginning(model_file, block=block)
        prepare_project(base, [raster], folder, {"cells": 2}, beginning, [tmp_path / "scene.zarr"], progress=progress)

    for wrong in (1, -5, math.nan):
        with pytest.raises(RasterError, match=f"`block` must not be smaller than a cell, not {wrong}"):
            prepare(wrong)
        assert not is_project(folder)
    prepare(100)
    prepare(100)
    prepare(None)
    assert not any("side of the blocks" in own for own in said)
    prepare(200)
    assert said[-1] == "the side of the blocks is for new projects; this one goes on with 100"
    assert read_about(folder).block == 100


class _Told(Progress):
    def __init__(self, said: list[str]) -> None:
        self.said = said

    def say(self, line: str) -> None:
        self.said.append(line)


@pytest.mark.parametrize(
    ("rasters", "indexes", "words"),
    [
        (["a/one.tif", "b/one.tif"], [], "same name"),
        (["one.tif"], [Path("x.zarr"), Path("y.zarr")], "`index` is needed for each of the 1 rasters"),
        (["/vsicurl/http://nowhere/one.tif"], [], "files of this machine"),
    ],
)
def test_what_cannot_be_labelled_makes_no_project(
    rasters: list[str], indexes: list[Path], words: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=words):
        prepare_project(SceneClassifier(), rasters, tmp_path / "p", {}, Beginning(), indexes)
    assert not is_project(tmp_path / "p")


def test_a_project_is_continued_with_the_model_that_it_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mgcap.labelling.preparing.descriptor_fingerprint", lambda model: model)
    monkeypatch.chdir(tmp_path)
    for name, kind in (("own", "a"), ("alike", "a"), ("other", "b")):
        Path(f"{name}.mgcap").write_text(kind)

    def load(path: Path) -> Any:
        return SimpleNamespace(path=path, model_=path.read_text() if path.is_file() else "")

    def begun_with(given: str | None) -> str:
        return str(base_model(Path("p"), given, load).path.name)

    assert [begun_with(given) for given in (None, "other.mgcap")] == ["ucmerced", "other.mgcap"]  # a new one
    create_project(Path("p"), "../own.mgcap")
    assert [begun_with(given) for given in (None, "own.mgcap", "alike.mgcap")] == ["own.mgcap"] * 3
    with pytest.raises(DataError, match=r"begun with the model own, and other .* begin another `project`"):
        begun_with("other.mgcap")
