from __future__ import annotations

import pytest
import torch

from mgcap import Finetune
from mgcap.errors import DataError, ValuesError


def test_the_paper_is_the_default() -> None:
    recipe = Finetune()
    assert (recipe.batch, recipe.lr, recipe.momentum, recipe.weight_decay) == (12, 1e-3, 0.9, 5e-4)
    assert (recipe.head_lr, recipe.head_decay_epochs, recipe.decay) == (0.1, 30, 0.15)
    assert [recipe.rate(e) for e in (0, 2.99, 3, 5.5, 6)] == pytest.approx([1e-3, 1e-3, 1.5e-4, 1.5e-4, 2.25e-5])
    (group,) = recipe.make_optimiser([torch.nn.Parameter(torch.zeros(1))]).param_groups
    assert group["momentum"] == 0.9 and group["weight_decay"] == 5e-4


def test_other_schedules_and_optimisers() -> None:
    cosine = Finetune(schedule="cosine", epochs=4, lr=0.2)
    assert [cosine.rate(e) for e in (0, 2, 4)] == pytest.approx([0.2, 0.1, 0.0])
    assert Finetune(schedule="constant").rate(100) == 1e-3
    parameters = [torch.nn.Parameter(torch.zeros(1))]
    assert isinstance(Finetune(optimiser="adamw").make_optimiser(parameters), torch.optim.AdamW)
    assert type(Finetune(optimiser="adam").make_optimiser(parameters)) is torch.optim.Adam


def test_class_weights() -> None:
    targets = [0, 0, 0, 1]
    assert Finetune().weights_of("ab", targets).tolist() == [1, 1]
    auto = Finetune(class_weights="auto").weights_of("ab", targets)
    assert auto[0] * 3 == pytest.approx(float(auto[1])) and float(auto[torch.tensor(targets)].sum()) == pytest.approx(4)
    assert Finetune(class_weights={"b": 2, "a": 0.5}).weights_of("ab", targets).tolist() == [0.5, 2]
    with pytest.raises(DataError, match="'c' is not a class"):
        Finetune(class_weights={"a": 1, "b": 1, "c": 1}).weights_of("ab", targets)
    with pytest.raises(DataError, match="'b' is missing"):
        Finetune(class_weights={"a": 1}).weights_of("ab", targets)


@pytest.mark.parametrize(
    "wrong, sentence",
    [
        ({"lr": 0}, "greater than 0"),
        ({"epochs": 0}, r"^epochs: Input should be greater than or equal to 1 \(given: 0\)$"),
        ({"epoch": 3}, r"^'epoch' is not an option \(did you mean 'epochs'\?\)"),
        ({"optimiser": "lion"}, "'sgd', 'adam' or 'adamw'"),
        ({"colour": 1}, "less than 1"),
        ({"patience": 2}, "needs a validation part"),
        ({"copies": 1}, "needs train_from"),
        ({"ema": 1.0}, "less than 1"),
    ],
)
def test_impossible_values(wrong: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValuesError, match=sentence):
        Finetune(**wrong)  # type: ignore[arg-type]
