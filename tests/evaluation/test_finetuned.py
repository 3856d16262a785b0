from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mgcap import SceneClassifier
from mgcap.data.folders import open_folder
from mgcap.data.splits import make_split
from mgcap.errors import DataError
from mgcap.evaluation.ablation import ablation_studies
from mgcap.evaluation.finetuned import FinetunedStudy
from tests.cli.run import SMALL, run, sentence
from tests.conftest import TINY


def _study(scenes: Path, out: Path, **recipe: Any) -> FinetunedStudy:
    folder = open_folder(scenes)
    splits = [make_split(folder.targets, 0.5, seed) for seed in range(2)]
    options = {"epochs": 1, "batch": 6, "head_epochs": 2, **recipe}
    classifier = SceneClassifier(**TINY, finetune=options)
    return FinetunedStudy(classifier.setup(), folder, splits, {"run": classifier.configuration(4)}, out)


def test_each_run_is_what_training_on_its_split_gives(scenes: Path, tmp_path: Path) -> None:
    (summary,) = _study(scenes, tmp_path).run().values()
    folder = open_folder(scenes)
    split = make_split(folder.targets, 0.5, 1)
    train, test = folder.subset(split.train), folder.subset(split.test)
    model = SceneClassifier(**TINY, seed=1, finetune={"epochs": 1, "batch": 6, "head_epochs": 2})
    model.fit(train.paths, train.labels)
    assert summary["runs"][1] == pytest.approx(100 * model.score(test.paths, test.labels))
    assert summary["test_images"] == 12 and len((tmp_path / "runs.csv").read_text().splitlines()) == 3
    assert not list(tmp_path.rglob("*.safetensors"))
    kept = SceneClassifier.load(tmp_path / "models" / "run-01.mgcap")
    assert summary["runs"][1] == pytest.approx(100 * kept.score(test.paths, test.labels))


def test_a_killed_study_resumes_in_the_middle_of_a_run(
    scenes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = _study(scenes, tmp_path / "whole", epochs=2).run()["run"]
    study = _study(scenes, tmp_path / "halted", epochs=2)
    from mgcap.training.finetune import Finetuner

    validate, calls = Finetuner._finish_epoch, [0]

    def fail(self: Finetuner) -> None:
        validate(self)
        calls[0] += 1
        if calls[0] == 3:  # after the first epoch of the second run
            raise KeyboardInterrupt

    monkeypatch.setattr(Finetuner, "_finish_epoch", fail)
    with pytest.raises(KeyboardInterrupt):
        study.run()
    assert (tmp_path / "halted" / "training" / "run-01" / "checkpoint.safetensors").exists()
    again = _study(scenes, tmp_path / "halted", epochs=2).run()["run"]
    assert calls[0] == 4 and again["runs"] == whole["runs"]
    with pytest.raises(DataError, match="other finetune"):
        _study(scenes, tmp_path / "halted", epochs=3)


def test_the_gradient_is_a_study_of_finetuning(scenes: Path, tmp_path: Path) -> None:
    base = SceneClassifier(**TINY).configuration(4)
    assert "gradient" not in ablation_studies(base) and "gradient" in ablation_studies(base, None, True)
    wrong = ["ablate", scenes, "--out", tmp_path / "a", *SMALL, "--studies", "gradient"]
    assert "needs --finetune" in sentence(*wrong)
    tune = ["--finetune", "--tune", "epochs=1", "--tune", "head_epochs=2", "--runs", "1", "--train-ratio", "0.5"]
    done = run("ablate", scenes, "--out", tmp_path / "b", *SMALL, "--studies", "gradient", *tune)
    assert "exact" in done.stdout and "paper" in done.stdout
    done = run("evaluate", scenes, "--out", tmp_path / "c", *SMALL, *tune)
    assert "accuracy" in done.stderr and (tmp_path / "c" / "report.html").exists()
