"""Networks compute on the device that was asked for: on "meta" there are no numbers to come back from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mgcap.baselines.averaged import AveragedSoftmax
from mgcap.baselines.canonical import FrozenMgcap
from mgcap.baselines.comparison import Comparison
from mgcap.baselines.discriminative import TrainedNetwork
from mgcap.baselines.invariant import GroupCovariance, Idccp
from mgcap.baselines.method import Tools
from mgcap.baselines.networks import Layer, averaged
from mgcap.baselines.recurrent import Rtn
from mgcap.baselines.stacked import StackedCovarianceSvm
from mgcap.data.folders import open_folder
from mgcap.data.splits import make_split
from mgcap.errors import MgcapError
from mgcap.runtime import Runtime
from tests.baselines.shades import shades
from tests.conftest import TINY


def _layer(kind: type[Layer], tools: Tools) -> Layer:
    gather: tuple[Any, ...] = (averaged, "average") if kind is Layer else ()
    return kind("alexnet", "conv2", *gather, "torch", "random", device=tools.torch_device())


METHODS: dict[str, Callable[[Tools], Any]] = {
    "a layer": lambda tools: AveragedSoftmax(tools, _layer(Layer, tools)),
    "covariance over D4": lambda tools: Idccp(tools, _layer(GroupCovariance, tools)),  # type: ignore[arg-type]
    "stacked covariance": lambda tools: StackedCovarianceSvm(tools, "alexnet", weights="random"),
    "fine-tuned": lambda tools: TrainedNetwork(tools, "alexnet", 0.0, "random", 1),
    "recurrent": lambda tools: Rtn(tools, "alexnet", "random", 1),
    "MG-CAP": lambda tools: FrozenMgcap(tools, **{k: v for k, v in TINY.items() if k != "engine"}),
}


@pytest.mark.parametrize("name", METHODS)
def test_networks_are_where_they_were_asked_to_be(name: str) -> None:
    images, labels = shades(6)
    tools = Tools(engine="torch", device="meta")
    with pytest.raises((NotImplementedError, RuntimeError), match=r"[mM]eta"):
        METHODS[name](tools).fit(images, labels)


def test_a_device_that_is_not_there_is_said_before_the_work(scenes: Path, tmp_path: Path) -> None:
    folder = open_folder(scenes)
    splits = [make_split(folder.targets, 0.5, 0)]
    with pytest.raises(MgcapError, match="the device 'gpu' cannot be used here"):
        Comparison(folder, splits, ["colour"], tmp_path, runtime=Runtime(device="gpu"))
