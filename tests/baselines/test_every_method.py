"""What every method must do: survive a class with a single image, and answer the same for the same seed."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from mgcap.backbones import BACKBONES, build_backbone
from mgcap.baselines import find_methods, networks, visual_words
from mgcap.baselines.method import Tools
from mgcap.data.synthetic import draw_scene

NAMES = ["colour", "colour-rbf", "lbp", "gist", "sift-bovw", "sift-spm", "sift-llc"]
NAMES += ["alexnet-svm", "alexnet-bovw", "mscp-alexnet", "alexnet-tuned-svm", "dcnn-alexnet"]
NAMES += ["mscp-mra-alexnet", "gap-resnet50", "isqrt-cov"]


@pytest.mark.parametrize("name", NAMES)
def test_few_images_and_the_seed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def random_weights(backbone: str) -> SimpleNamespace:
        torch.manual_seed(0)
        return SimpleNamespace(state=build_backbone(backbone, list(BACKBONES[backbone].layers)[-1]).state_dict())

    monkeypatch.setattr(networks, "load_weights", random_weights)
    monkeypatch.setattr(visual_words, "SAMPLES", 2_000)  # k-means on them all takes most of the time
    counts = {"harbour": 4, "forest": 4, "runway": 1}
    images = [torch.from_numpy(draw_scene(label, 0, k, 128)) for label, n in counts.items() for k in range(n)]
    items = [image.permute(2, 0, 1) for image in images]
    labels = [label for label, n in counts.items() for _ in range(n)]
    make = find_methods()[name][1]
    answers = []
    for _ in range(2):
        method = make(Tools(engine="torch"))
        method.fit(items, labels)
        answers.append(method.predict(items).tolist())
        assert method.parameters() > 0
    assert answers[0] == answers[1] and set(answers[0]) <= set(labels)
    assert sum(a == b for a, b in zip(answers[0], labels, strict=True)) >= 5  # images that it has seen
