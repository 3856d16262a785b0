from __future__ import annotations

import pytest
import torch

from mgcap.errors import DataError
from mgcap.training.recipe import Finetune
from mgcap.training.sgd_head import train_head


def test_it_separates_what_can_be_separated() -> None:
    generator = torch.Generator().manual_seed(0)
    targets = torch.arange(60) % 3
    rows = torch.nn.functional.normalize(torch.eye(3)[targets] + 0.3 * torch.randn(60, 3, generator=generator))
    weight, bias = train_head(rows, targets.tolist(), torch.ones(3), Finetune(head_epochs=20))
    assert ((rows @ weight.T + bias).argmax(1) == targets).float().mean() > 0.9
    again, _ = train_head(rows, targets.tolist(), torch.ones(3), Finetune(head_epochs=20))
    assert torch.equal(weight, again)


def test_one_step_is_the_textbook_one() -> None:
    """From zero: the gradient of the mean cross-entropy, times the rate."""
    rows, targets = torch.tensor([[1.0, 0.0], [0.0, 2.0]]), [0, 1]
    weight, bias = train_head(rows, targets, torch.ones(2), Finetune(head_epochs=1, batch=2, head_lr=0.5))
    error = torch.full((2, 2), 0.5) - torch.eye(2)  # p - y
    torch.testing.assert_close(weight, -0.5 * error.T @ rows / 2)
    torch.testing.assert_close(bias, -0.5 * error.sum(0) / 2)


def test_a_heavier_class_is_chosen_where_nothing_speaks_against_it() -> None:
    rows, targets = torch.ones(4, 1), [0, 0, 1, 1]
    _, bias = train_head(rows, targets, torch.tensor([1.0, 5.0]), Finetune(head_epochs=30))
    assert bias[1] > bias[0]


def test_the_rate_is_the_papers_for_descriptors_of_the_papers_length() -> None:
    """Training on descriptors sqrt(side) times as long, at the plain rate, gives the same function."""
    generator = torch.Generator().manual_seed(0)
    rows, targets = torch.randn(20, 3, generator=generator), [k % 2 for k in range(20)]
    recipe = Finetune(head_epochs=4, weight_decay=0.1, head_lr=0.01)
    weight, bias = train_head(rows, targets, torch.ones(2), recipe, side=16)
    longer, same_bias = train_head(4 * rows, targets, torch.ones(2), recipe)
    torch.testing.assert_close(weight, 4 * longer, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(bias, same_bias, rtol=1e-4, atol=1e-6)


def test_rows_that_are_not_finite_are_refused() -> None:
    rows = torch.eye(4)
    rows[2, 1] = float("nan")
    with pytest.raises(DataError, match="not finite"):
        train_head(rows, [0, 1, 0, 1], torch.ones(2), Finetune(head_epochs=1))
