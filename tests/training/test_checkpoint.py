from __future__ import annotations

from pathlib import Path

import pytest
import torch

from mgcap.errors import DataError
from mgcap.training.checkpoint import optimiser_tensors, read_checkpoint, restore_optimiser, write_checkpoint
from mgcap.training.recipe import Finetune


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw"])
def test_an_optimiser_goes_on_as_if_nothing_had_happened(name: str, tmp_path: Path) -> None:
    recipe = Finetune(optimiser=name, lr=0.1)  # type: ignore[arg-type]

    def steps(parameter: torch.nn.Parameter, optimiser: torch.optim.Optimizer, count: int) -> None:
        for k in range(count):
            optimiser.zero_grad()
            (parameter * torch.arange(1.0, 5.0)).sin().sum().mul(k + 1.0).backward()
            optimiser.step()

    whole = torch.nn.Parameter(torch.ones(4))
    optimiser = recipe.make_optimiser([whole])
    steps(whole, optimiser, 3)
    write_checkpoint(tmp_path / "c", {"p": whole, **optimiser_tensors(optimiser)}, {"epoch": 3})
    steps(whole, optimiser, 3)

    tensors, values = read_checkpoint(tmp_path / "c")
    assert values == {"epoch": 3}
    again = torch.nn.Parameter(tensors["p"].clone())
    other = recipe.make_optimiser([again])
    restore_optimiser(other, tensors)
    steps(again, other, 3)
    assert torch.equal(again, whole)


def test_damaged_and_missing_files(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        read_checkpoint(tmp_path / "none")
    write_checkpoint(tmp_path / "c", {"p": torch.zeros(100)}, {})
    (tmp_path / "c").write_bytes((tmp_path / "c").read_bytes()[:-50])
    with pytest.raises(DataError, match="damaged"):
        read_checkpoint(tmp_path / "c")
    (tmp_path / "c").write_bytes(b"no checkpoint at all")
    with pytest.raises(DataError, match="damaged"):
        read_checkpoint(tmp_path / "c")
