from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mgcap import SceneClassifier
from mgcap.baselines.canonical import FrozenMgcap
from mgcap.baselines.method import Tools
from mgcap.data.folders import open_folder
from mgcap.data.splits import make_split
from tests.conftest import TINY


@pytest.mark.parametrize("reduction", ["pca", "none"])
def test_it_is_the_classifier_itself(scenes: Path, reduction: str) -> None:
    options = {**TINY, "reduction": reduction, "channels": 8 if reduction == "pca" else None}
    folder = open_folder(scenes)
    split = make_split(folder.targets, 0.5, 0)
    train, test = folder.subset(split.train), folder.subset(split.test)
    classifier = SceneClassifier(**options, cache=False).fit(train.paths, train.labels)  # type: ignore[arg-type]
    own = {key: value for key, value in options.items() if key != "engine"}
    method = FrozenMgcap(Tools(engine="torch"), **own)  # type: ignore[arg-type]
    answers = method.fit(list(train.paths), list(train.labels)).predict(list(test.paths))
    assert np.mean(answers == classifier.predict(test.paths)) > 0.9  # features are kept in half precision
    assert method.parameters() > 2_000_000
