from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import gradcheck

from mgcap.embedding import gaussian_embedding, normalise_features
from mgcap.spectral import _eigh, matrix_log, matrix_sqrt
from tests.oracles import spd

CLIP = (1e-5, 1e5)
FUNCTIONS = {"log": (matrix_log, np.log), "sqrt": (matrix_sqrt, np.sqrt)}
SPECTRA = {
    "distinct": [0.03, 0.4, 1.1, 2.7, 9.0],
    "repeated": [0.5, 0.5, 0.5, 2.0, 2.0],
    "all equal": [1.5] * 5,
    "clipped": [-0.7, -1e-3, 1e-7, 0.6, 3.0],
    "clipped above": [0.2, 1.0, 4.0, 2e5, 7e5],
    "zero": [0.0, 0.0, 0.0, 1.0, 2.0],
    "wide": [1e-4, 1e-2, 1.0, 1e2, 1e4],
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("spectrum", SPECTRA)
def test_values_against_the_oracle(name: str, spectrum: str) -> None:
    ours, f = FUNCTIONS[name]
    matrix, basis = spd.with_spectrum(SPECTRA[spectrum])
    expected = spd.spectral(SPECTRA[spectrum], basis, f, CLIP)
    double = ours(torch.from_numpy(matrix)).numpy()
    # rounding of the input is amplified by f' at the clip: 1e-9 holds relative to that
    assert np.abs(double - expected).max() <= 1e-9 * max(1, np.abs(matrix).max())
    if spectrum in ("distinct", "repeated", "all equal"):
        assert np.abs(double - expected).max() < 1e-9
        single = ours(torch.from_numpy(matrix).float()).double().numpy()
        assert np.linalg.norm(single - expected) < 1e-4 * np.linalg.norm(expected)


def test_known_values_from_scipy() -> None:
    matrix, _ = spd.with_spectrum(SPECTRA["distinct"], seed=3)
    tensor = torch.from_numpy(matrix)
    np.testing.assert_allclose(matrix_log(tensor).numpy(), scipy.linalg.logm(matrix), atol=1e-9)
    np.testing.assert_allclose(matrix_sqrt(tensor).numpy(), scipy.linalg.sqrtm(matrix), atol=1e-9)
    leading = matrix_sqrt(tensor, scale="leading").numpy()
    np.testing.assert_allclose(leading, scipy.linalg.sqrtm(matrix) / np.sqrt(9.0), atol=1e-9)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("spectrum", ["distinct", "repeated", "all equal", "clipped", "zero", "clipped above"])
def test_gradient_against_finite_differences(name: str, spectrum: str) -> None:
    ours, f = FUNCTIONS[name]
    clip = (1e-2, 1e5)  # far enough from the eigenvalues for a finite step
    matrix, _ = spd.with_spectrum(SPECTRA[spectrum], seed=1)
    weight = np.random.default_rng(0).standard_normal(matrix.shape)
    weight = weight + weight.T
    tensor = torch.from_numpy(matrix).requires_grad_()
    (ours(tensor, clip=clip) * torch.from_numpy(weight)).sum().backward()
    scale = np.abs(matrix).max()
    step = 1e-6 * max(1.0, scale * 1e-2)
    numeric = spd.numeric_gradient(spd.rectified(f, clip), matrix, weight, step)
    np.testing.assert_allclose(tensor.grad.numpy(), numeric, atol=2e-5 * max(1, np.abs(numeric).max()))


@pytest.mark.parametrize(
    "function",
    [
        matrix_log,
        matrix_sqrt,
        lambda g: matrix_sqrt(g, scale="leading"),
        lambda g: matrix_log(g, gradient="paper"),
        lambda g: matrix_sqrt(g, gradient="paper"),
        lambda g: matrix_sqrt(g, gradient="paper", scale="leading"),
        lambda g: matrix_sqrt(g, method="newton-schulz"),
    ],
)
def test_gradcheck_in_batches(function) -> None:
    matrices = torch.stack([torch.from_numpy(spd.with_spectrum(SPECTRA["distinct"], seed=s)[0]) for s in range(4)])
    assert gradcheck(function, (matrices.reshape(2, 2, 5, 5).requires_grad_(),))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradcheck_where_eigenvalues_coincide(name: str) -> None:
    matrix = torch.eye(4, dtype=torch.float64) * 2
    assert gradcheck(FUNCTIONS[name][0], (matrix.requires_grad_(),))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_paper_gradient_equals_exact_for_distinct_eigenvalues_only(name: str) -> None:
    ours = FUNCTIONS[name][0]
    for spectrum, same in (("distinct", True), ("repeated", False)):
        values = SPECTRA[spectrum]
        # a diagonal matrix keeps coinciding eigenvalues equal to the last bit
        matrix = torch.diag(torch.tensor(values, dtype=torch.float64))
        if same:
            matrix = torch.from_numpy(spd.with_spectrum(values)[0])
        weight = torch.randn(5, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        gradients = []
        for kind in ("exact", "paper"):
            leaf = matrix.clone().requires_grad_()
            (ours(leaf, gradient=kind) * weight).sum().backward()
            gradients.append(leaf.grad)
        assert torch.allclose(*gradients, atol=1e-9) is same


def test_paper_gradient_zeroes_what_the_exact_one_keeps() -> None:
    weight = torch.tensor([[0.0, 1.0], [1.0, 0.0]], dtype=torch.float64)
    for kind, expected in (("exact", 0.5), ("paper", 0.0)):
        leaf = torch.eye(2, dtype=torch.float64).requires_grad_()
        (matrix_sqrt(leaf, gradient=kind) * weight).sum().backward()
        assert leaf.grad[0, 1].item() == pytest.approx(expected)  # f'(1) = 1/2


def _low_rank(count: int = 2, channels: int = 512, positions: int = 196) -> torch.Tensor:
    features = torch.randn(count, channels, positions, generator=torch.Generator().manual_seed(0))
    return gaussian_embedding(normalise_features(features))


@pytest.mark.parametrize("ridge_free", [False, True])
@pytest.mark.parametrize("method", ["log", "sqrt", "sqrt leading", "log paper", "sqrt paper", "newton-schulz"])
def test_nothing_is_lost_on_513_of_rank_197_in_float32(method: str, ridge_free: bool) -> None:
    matrix = _low_rank()
    if ridge_free:
        matrix = matrix - matrix.diagonal(dim1=-2, dim2=-1).sum(-1)[:, None, None] * 1e-4 / 1.0513 * torch.eye(513)
    leaf = matrix.requires_grad_()
    function = {
        "log": matrix_log,
        "sqrt": matrix_sqrt,
        "sqrt leading": lambda g: matrix_sqrt(g, scale="leading"),
        "log paper": lambda g: matrix_log(g, gradient="paper"),
        "sqrt paper": lambda g: matrix_sqrt(g, gradient="paper"),
        "newton-schulz": lambda g: matrix_sqrt(g, method="newton-schulz"),
    }[method]
    out = function(leaf)
    (out * torch.randn(out.shape, generator=torch.Generator().manual_seed(1))).sum().backward()
    assert out.dtype == torch.float32
    assert torch.isfinite(out).all()
    assert torch.isfinite(leaf.grad).all()


def test_float32_is_close_to_float64_on_513() -> None:
    matrix = _low_rank(1)
    for function in (matrix_log, matrix_sqrt):
        single, double = function(matrix).double(), function(matrix.double())
        assert (single - double).norm() < 1e-4 * double.norm()


def test_newton_schulz_agrees_with_eigh_forward_and_backward() -> None:
    matrix = _low_rank(1)
    weight = torch.randn(513, 513, generator=torch.Generator().manual_seed(1))
    results = []
    for method in ("eigh", "newton-schulz"):
        leaf = matrix.clone().requires_grad_()
        out = matrix_sqrt(leaf, method=method)
        (out * weight).sum().backward()
        results.append((out.detach(), leaf.grad))
    (a, ga), (b, gb) = results
    assert (a - b).norm() < 1e-4 * a.norm()
    assert (ga - gb).norm() < 1e-2 * ga.norm()


def test_newton_schulz_rectifies_negative_eigenvalues() -> None:
    matrix = torch.from_numpy(spd.with_spectrum([-2.0, -0.1, 0.3, 1.0, 5.0])[0]).requires_grad_()
    clip = (1e-2, 1e5)
    expected = matrix_sqrt(matrix, clip=clip)
    assert torch.allclose(matrix_sqrt(matrix, clip=clip, method="newton-schulz"), expected, atol=1e-9)
    assert gradcheck(lambda g: matrix_sqrt(g, clip=clip, method="newton-schulz"), (matrix,))


def test_shapes_dtypes_and_bad_input() -> None:
    for dtype in (torch.float32, torch.float64):
        for shape in ((3, 3), (2, 3, 3), (2, 1, 4, 3, 3), (0, 3, 3)):
            matrix = torch.eye(3, dtype=dtype).expand(*shape) * 4
            out = matrix_sqrt(matrix)
            assert out.shape == shape and out.dtype == dtype
            assert torch.allclose(out, matrix / 2)
    with pytest.raises(ValueError, match="not finite"):
        matrix_sqrt(torch.full((3, 3), float("nan")))
    with pytest.raises(ValueError, match="allowed with"):
        matrix_sqrt(torch.eye(3), method="newton-schulz", scale="leading")


spectra = st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=7)


@settings(deadline=None, max_examples=40)
@given(spectra, st.integers(0, 1000))
def test_root_squared_and_exp_of_log_give_the_matrix_back(values: list[float], seed: int) -> None:
    matrix = torch.from_numpy(spd.with_spectrum(values, seed)[0])
    root = matrix_sqrt(matrix)
    assert torch.allclose(root @ root, matrix, atol=1e-8 * max(values))
    assert torch.allclose(torch.matrix_exp(matrix_log(matrix)), matrix, atol=1e-8 * max(values))


@settings(deadline=None, max_examples=40)
@given(spectra, st.integers(0, 1000))
def test_equivariant_under_rotation(values: list[float], seed: int) -> None:
    matrix = torch.from_numpy(spd.with_spectrum(values, seed)[0])
    rotation = torch.from_numpy(spd.orthogonal(len(values), seed + 1))
    for function in (matrix_log, matrix_sqrt):
        rotated = function(rotation @ matrix @ rotation.mT)
        assert torch.allclose(rotated, rotation @ function(matrix) @ rotation.mT, atol=1e-7 * max(1, max(values)))


@settings(deadline=None, max_examples=40)
@given(st.lists(st.sampled_from([0.0, 1e-6, 0.5, 0.5, 2.0, 2.0 + 1e-12]), min_size=2, max_size=6), st.integers(0, 99))
def test_gradient_is_finite_and_symmetric_whatever_coincides(values: list[float], seed: int) -> None:
    matrix = torch.from_numpy(spd.with_spectrum(values, seed)[0]).requires_grad_()
    weight = torch.randn(len(values), len(values), dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    for function in (matrix_log, matrix_sqrt):
        (gradient,) = torch.autograd.grad((function(matrix) * weight).sum(), matrix)
        assert torch.isfinite(gradient).all()
        assert torch.allclose(gradient, gradient.mT, rtol=1e-6, atol=1e-6 * gradient.abs().max().item())


def test_a_matrix_does_not_depend_on_others_or_on_threads() -> None:
    matrices = torch.randn(7, 9, 9, generator=torch.Generator().manual_seed(0))
    matrices = matrices @ matrices.mT
    threads = torch.get_num_threads()
    try:
        found = []
        for count in (1, 2):
            torch.set_num_threads(count)
            found += [_eigh(matrices)[1], torch.stack([_eigh(own)[1] for own in matrices])]
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(found[0], other) for other in found[1:])
