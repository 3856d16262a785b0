from __future__ import annotations

from pathlib import Path

import pytest

from mgcap import SceneClassifier
from mgcap.data.folders import open_folder
from mgcap.data.splits import Split
from mgcap.errors import DataError
from mgcap.explain.set_page import Wanted, write_set_page


def test_what_is_wanted_is_on_the_page(scenes: Path, model_file: Path, tmp_path: Path) -> None:
    classifier = SceneClassifier.load(model_file, engine="torch")
    folder = open_folder(scenes)
    done = write_set_page(classifier, folder, tmp_path, Wanted(flat="none"), model="tiny", command="mgcap explain x")
    text = done.page.read_text()
    assert f"24 images of {len(folder.classes)} classes by tiny" in text and "mgcap explain x" in text
    assert "All descriptors" not in text and not done.faithfulness and not done.skipped
    assert {"variance_before", "sharpness_after"} <= set(done.means)
    wanted = Wanted(Split((0, 1, 2), (23,)), folder.paths[:1], 2, "pca", 1)
    more = write_set_page(classifier, folder, tmp_path, wanted)
    text = more.page.read_text()
    assert "All descriptors" in text and 'class="cards"' in text
    assert {"deletion", "insertion"} == set(more.faithfulness["gradcam"])
    assert more.means == done.means


def test_a_set_without_images_that_can_be_read(scenes: Path, model_file: Path, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "broken.png").write_text("no")
    classifier = SceneClassifier.load(model_file, engine="torch")
    with pytest.raises(DataError, match="none of the images"):
        write_set_page(classifier, open_folder(tmp_path, minimum_classes=1), tmp_path / "out")
