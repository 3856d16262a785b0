from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mgcap.head import descriptor_vector, signed_root, to_vector, top_classes, vector_length


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 8), st.integers(0, 99))
def test_both_vectors_keep_inner_products(side: int, seed: int) -> None:
    a, b = torch.randn(2, side, side, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    a, b = a + a.mT, b + b.mT
    inner = (a * b).sum().item()
    for kind in ("triangle", "full"):
        va, vb = to_vector(a, kind), to_vector(b, kind)
        assert va.shape == (vector_length(side, kind),)
        assert (va @ vb).item() == pytest.approx(inner, abs=1e-9)


def test_lengths_of_the_paper() -> None:
    assert vector_length(513, "triangle") == 131_841
    assert vector_length(513, "full") == 263_169
    assert vector_length(129, "triangle") == 8_385


def test_order_of_the_triangle() -> None:
    matrix = torch.tensor([[1.0, 2.0], [2.0, 5.0]])
    assert torch.allclose(to_vector(matrix), torch.tensor([1.0, 2.0 * 2**0.5, 5.0]))


def test_signed_root_has_a_finite_gradient_at_zero() -> None:
    vector = torch.tensor([-4.0, 0.0, 9.0], requires_grad=True)
    out = signed_root(vector)
    assert out.tolist() == [-2.0, 0.0, 3.0]
    out.sum().backward()
    assert torch.isfinite(vector.grad).all()


def test_descriptor_has_length_one() -> None:
    matrix = torch.randn(3, 4, 4)
    for root in (False, True):
        assert torch.allclose(descriptor_vector(matrix, root=root).norm(dim=1), torch.ones(3))
    assert torch.isfinite(descriptor_vector(torch.zeros(1, 4, 4), root=True)).all()


def test_top_classes_come_first_and_equal_ones_in_their_order() -> None:
    found = top_classes(["a", "b", "c", "d"], np.array([0.2, 0.3, 0.2, 0.3]), 3)
    assert found == [("b", 0.3), ("d", 0.3), ("a", 0.2)]
