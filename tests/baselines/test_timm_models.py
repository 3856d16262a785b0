from __future__ import annotations

import sys
import types

import pytest
import torch

from mgcap.baselines import timm_models
from mgcap.baselines.method import Tools
from mgcap.errors import MgcapError
from tests.baselines.shades import IMAGES, shades


def test_a_model_of_timm(monkeypatch: pytest.MonkeyPatch) -> None:
    class Flat(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.mean((-2, -1))

    stand_in = types.ModuleType("timm")
    stand_in.create_model = lambda name, pretrained, num_classes: Flat()  # type: ignore[attr-defined]
    config = {"mean": (0.5, 0.5, 0.5), "std": (0.25, 0.25, 0.25), "input_size": (3, 32, 32)}
    stand_in.data = types.SimpleNamespace(resolve_model_data_config=lambda model: config)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "timm", stand_in)
    timm_models._opened.cache_clear()
    rows = timm_models.PooledFeatures("flat").rows(torch.full((2, 3, 256, 256), 0.75))
    torch.testing.assert_close(rows, torch.ones(2, 3))
    images, labels = shades(6)
    method = timm_models.timm_method("timm:flat")[1](Tools())
    method.fit(images, labels)
    assert set(method.predict(images)) <= set(labels)
    timm_models._opened.cache_clear()
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(MgcapError, match="needs timm"):
        timm_models.PooledFeatures("flat").rows(IMAGES)
