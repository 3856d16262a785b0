from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from mgcap import SceneClassifier
from mgcap.data.folders import SceneFolder, open_folder
from mgcap.data.splits import Split, make_split
from mgcap.data.synthetic import calibration_scenes
from mgcap.errors import DataError
from mgcap.evaluation.protocol import Study
from mgcap.evaluation.summary import evaluate_model
from mgcap.inference.extraction import Extractor
from tests.conftest import TINY


def _study(scenes: Path, out: Path, runs: int = 3, **changes: object) -> Study:
    folder = open_folder(scenes)
    splits = [make_split(folder.targets, 0.5, seed) for seed in range(runs)]
    return _of(SceneClassifier(**{**TINY, **changes}), folder, splits, out)


def _of(classifier: SceneClassifier, folder: SceneFolder, splits: list[Split], out: Path) -> Study:
    return Study(classifier.setup(), folder, splits, {"run": classifier.configuration(len(folder.classes))}, out)


def test_the_runs_are_those_of_a_classifier_by_itself(scenes: Path, tmp_path: Path) -> None:
    """One pass for all splits gives what training on each split alone gives.

    Without a PCA: which rotation of an image it sees depends on the images around it.
    """
    plain = {"reduction": "none", "channels": None, "regularisation": 1e-2}  # others may give a tie
    study = _study(scenes, tmp_path, **plain)
    (summary,) = study.run().values()
    folder = study.folder
    for split, accuracy in zip(study.splits, summary["runs"], strict=True):
        train, test = folder.subset(split.train), folder.subset(split.test)
        alone = SceneClassifier(**{**TINY, **plain}).fit(train.paths, train.labels)
        _, found, _ = alone.predict_readable(test.paths, lambda i, error: None)  # of the same rows, in half precision
        right = alone.classes_[found.argmax(1)] == np.array(test.labels)
        assert accuracy == pytest.approx(100 * right.mean())
    assert summary["mean"] == pytest.approx(np.mean(summary["runs"]))
    assert summary["std"] == pytest.approx(np.std(summary["runs"], ddof=1))
    assert np.sum(summary["confusion"]) == 3 * summary["test_images"]
    with (tmp_path / "runs.csv").open() as file:
        assert [row["run"] for row in csv.DictReader(file)] == ["0", "1", "2"]
    assert len(list((tmp_path / "splits").glob("*.csv"))) == 3


def test_a_killed_study_resumes(scenes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = _study(scenes, tmp_path / "whole").run()["run"]
    _study(scenes, tmp_path / "killed").run()
    (tmp_path / "killed" / "runs" / "run-01.json").unlink()
    seen: list[int] = []
    one = Study._one
    monkeypatch.setattr(Study, "_one", lambda self, *rest: seen.append(1) or one(self, *rest))
    assert _study(scenes, tmp_path / "killed").run()["run"]["runs"] == whole["runs"] and len(seen) == 1
    monkeypatch.setattr(Extractor, "__init__", None)  # nothing is computed when all is there
    assert _study(scenes, tmp_path / "killed").run()["run"]["runs"] == whole["runs"]


def test_another_study_is_not_written_over(scenes: Path, tmp_path: Path) -> None:
    _study(scenes, tmp_path).run()
    with pytest.raises(DataError, match="other configuration"):
        _study(scenes, tmp_path, rotations=1)
    with pytest.raises(DataError, match="other splits"):
        _study(scenes, tmp_path, runs=2)
    (tmp_path / "study.json").write_text("{")
    with pytest.raises(DataError, match="cannot be read"):
        _study(scenes, tmp_path)


def test_labels_that_mean_nothing_give_chance(tmp_path: Path) -> None:
    """No way for a test label to reach training: on noise the accuracy is that of guessing."""
    from PIL import Image

    rng = np.random.default_rng(0)
    for name in ("a", "b"):
        (tmp_path / "noise" / name).mkdir(parents=True)
        for index in range(40):
            Image.fromarray(rng.integers(0, 255, (40, 40, 3), np.uint8)).save(
                tmp_path / "noise" / name / f"{index}.png"
            )
    summary = _study(tmp_path / "noise", tmp_path / "out", runs=4).run()["run"]
    assert 30 < summary["mean"] < 70


def test_int8_is_calibrated_on_drawn_scenes() -> None:
    drawn = calibration_scenes()
    assert len(drawn) == 64 and isinstance(drawn[0], np.ndarray)
    assert len({scene.tobytes() for scene in drawn if isinstance(scene, np.ndarray)}) == 64


def test_a_model_on_a_folder(scenes: Path, tmp_path: Path) -> None:
    folder = open_folder(scenes)
    model = SceneClassifier(**TINY).fit(folder.paths, folder.labels)
    summary = evaluate_model(model, folder, lambda i, e: None)
    assert summary["mean"] == pytest.approx(100 * model.score(folder.paths, folder.labels))
    (tmp_path / "strange").mkdir()
    (tmp_path / "strange" / "a.png").write_bytes(folder.paths[0].read_bytes())
    with pytest.raises(DataError, match="does not know the class 'strange'"):
        evaluate_model(model, open_folder(tmp_path, 1), lambda i, e: None)


def test_json_is_what_was_promised(scenes: Path, tmp_path: Path) -> None:
    _study(scenes, tmp_path, runs=1).run()
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert {"mean", "std", "runs", "per_class_accuracy", "confusion", "configuration", "versions"} <= set(summary)
    assert summary["std"] is None


def test_settings_share_one_pass_and_agree_with_studies_of_their_own(scenes: Path, tmp_path: Path) -> None:
    folder = open_folder(scenes)
    splits = [make_split(folder.targets, 0.5, seed) for seed in range(2)]
    classifier = SceneClassifier(
        **{**TINY, "rotations": 4, "granularities": (1.0, 0.8), "reduction": "none", "channels": None}
    )
    base = classifier.configuration(len(folder.classes))
    settings = {
        "base": base,
        "two": base.replace(rotations=2),
        "small": base.replace(granularities=(0.8,)),
        "raw": base.replace(activated=False),
        "mean": base.replace(rotation_pooling="mean"),
        "log": base.replace(normalisation="log"),
        "covariance": base.replace(embedding="covariance"),
    }
    together = Study(classifier.setup(), folder, splits, settings, tmp_path / "all").run()
    for name, config in settings.items():
        given = config.model_dump(include=config.model_fields_set - {"preset", "num_classes"})
        alone = SceneClassifier(**{**TINY, **given})
        (own,) = _of(alone, folder, splits, tmp_path / name).run().values()
        assert together[name]["runs"] == pytest.approx(own["runs"], abs=100 / own["test_images"] + 1e-9), name


def test_settings_that_need_other_views_are_refused(scenes: Path, tmp_path: Path) -> None:
    folder = open_folder(scenes)
    classifier = SceneClassifier(**TINY)
    base = classifier.configuration(4)
    for other in (base.replace(size=96), base.replace(rotations=3)):
        with pytest.raises(DataError, match="cannot share"):
            Study(classifier.setup(), folder, [], {"a": base, "b": other}, tmp_path)
