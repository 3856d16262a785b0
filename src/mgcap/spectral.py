r"""The EIG-decomposition layer (Eq. 9-13): :math:`U f(\Sigma) U^\top` of a symmetric matrix, and its derivative.

With the rectified eigenvalues :math:`r_i=\min(\max(\nu_i,\varepsilon),\varepsilon')` (Eq. 11-12), :math:`f=\log` or
:math:`\sqrt{\cdot}`, and :math:`M=U^\top \mathrm{sym}(\partial L/\partial Y)\,U`, the derivative is (Daleckii-Krein)

.. math:: \frac{\partial L}{\partial G} = U (K\odot M) U^\top, \qquad
          K_{ij} = f[r_i,r_j]\; r[\nu_i,\nu_j],

the product of the divided differences of f and of the rectification. Both are computed in forms without
cancellation and have finite limits where eigenvalues coincide (f' and the 0/1 of Eq. 26), so nothing has to be
replaced by zero. ``gradient="paper"`` is Eq. 20-25 to the letter, infinities replaced by zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from mgcap.threads import side_by_side

if TYPE_CHECKING:
    from mgcap.config import MGCAPConfig

Gradient = Literal["exact", "paper"]
Scale = Literal["none", "leading"]

#: Matrices of at most this many rows are decomposed side by side, on one thread each.
SMALL_SIDE = 1024
#: Newton-Schulz lifts eigenvalues below this share of the Frobenius norm to it: rounding would make them negative.
NEWTON_SCHULZ_FLOOR = {torch.float32: 4e-6, torch.float64: 1e-13}


def _eigh(matrix: Tensor) -> tuple[Tensor, Tensor]:
    double = matrix + matrix.mT
    try:
        values, vectors = torch.linalg.eigh(double) if double.is_cuda else _eigh_side_by_side(double)
    except RuntimeError as error:  # torch's LinAlgError is one
        raise ValueError("the matrix has entries that are not finite, so it has no eigenvalues") from error
    return values / 2, vectors


def _eigh_side_by_side(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Decompose each matrix by itself, so that none depends on how many others there are."""
    shape = matrix.shape
    if shape[-1] > SMALL_SIDE or not matrix.numel():
        return tuple(torch.linalg.eigh(matrix))
    each = matrix.detach().reshape(-1, *shape[-2:]).unbind()
    values, vectors = (torch.stack(own) for own in zip(*side_by_side(torch.linalg.eigh, each), strict=True))
    return values.reshape(shape[:-1]), vectors.reshape(shape)


def _divided_difference(name: str, a: Tensor, b: Tensor) -> Tensor:
    """f[a, b] for positive a, b without cancellation; f'(a) where a = b."""
    if name == "sqrt":
        return 1 / (a.sqrt() + b.sqrt())
    # log a - log b = 2 artanh((a - b) / (a + b)); the plain quotient where a and b are far apart
    total, x = a + b, (a - b) / (a + b)
    near = x.abs() < 0.5
    small = torch.where(near & (x != 0), x, torch.full_like(x, 0.25))
    quotient = torch.where(near & (x == 0), torch.ones_like(x), torch.atanh(small) / small) * 2 / total
    gap = torch.where(near, torch.ones_like(x), a - b)
    return torch.where(near, quotient, (a.log() - b.log()) / gap)


def _loewner(name: str, values: Tensor, clip: tuple[float, float]) -> Tensor:
    """The matrix K: divided differences of f after the rectification."""
    rectified = values.clamp(*clip)
    ra, rb = rectified.unsqueeze(-1), rectified.unsqueeze(-2)
    quotient = _divided_difference(name, ra, rb)
    inside = (values > clip[0]) & (values < clip[1])
    if bool(inside.all()):  # nothing was rectified
        return quotient
    gap = values.unsqueeze(-1) - values.unsqueeze(-2)
    limit = inside.to(values).unsqueeze(-1).expand_as(gap)
    return quotient * torch.where(gap == 0, limit, (ra - rb) / torch.where(gap == 0, torch.ones_like(gap), gap))


class _SpectralMap(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, matrix: Tensor, name: str, clip: tuple[float, float], gradient: str, leading: bool) -> Tensor:
        values, vectors = _eigh(matrix)
        rectified = values.clamp(*clip)
        mapped = rectified.log() if name == "log" else rectified.sqrt()
        if leading:
            mapped = mapped / mapped[..., -1:]
        ctx.save_for_backward(values, vectors, mapped)
        ctx.name, ctx.clip, ctx.gradient, ctx.leading = name, clip, gradient, leading
        return (vectors * mapped.unsqueeze(-2)) @ vectors.mT

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None, None]:
        values, vectors, mapped = ctx.saved_tensors
        lower, upper = ctx.clip
        inner = vectors.mT @ (grad + grad.mT) @ (vectors / 2)
        diagonal = inner.diagonal(dim1=-2, dim2=-1).clone()
        largest = values[..., -1:].clamp(lower, upper)
        size = largest.sqrt() if ctx.leading else torch.ones_like(largest)
        if ctx.gradient == "exact":
            core = inner.mul_(_loewner(ctx.name, values, ctx.clip))
            core = core / size.unsqueeze(-1) if ctx.leading else core
        else:
            core = _paper_core(ctx.name, values, mapped, inner, diagonal, ctx.clip, size)
        if ctx.leading:
            # Eq. 25, second line: Y = root / sqrt(nu_1) also falls when nu_1 grows
            slope = ((values[..., -1:] > lower) & (values[..., -1:] < upper)) / (2 * largest)
            core[..., -1, -1] -= (slope * (mapped * diagonal).sum(-1, keepdim=True)).squeeze(-1)
        return vectors @ core @ vectors.mT, None, None, None, None


def _paper_core(
    name: str, values: Tensor, mapped: Tensor, inner: Tensor, diagonal: Tensor, clip: tuple[float, float], size: Tensor
) -> Tensor:
    """Eq. 20-26 as printed: Q with its infinities set to zero."""
    rectified = values.clamp(*clip)
    q = 1 / (values.unsqueeze(-1) - values.unsqueeze(-2))
    q = torch.where(torch.isfinite(q), q, torch.zeros_like(q))
    from_vectors = q.mT * (2 * inner * mapped.unsqueeze(-2))
    slope = 1 / rectified if name == "log" else 0.5 / rectified.sqrt() / size
    passes = (values > clip[0]) & (values < clip[1])
    return (from_vectors + from_vectors.mT) / 2 + torch.diag_embed(slope * passes * diagonal)


def matrix_log(matrix: Tensor, clip: tuple[float, float] = (1e-5, 1e5), gradient: Gradient = "exact") -> Tensor:
    """Log-E of Eq. 10: the logarithm of a symmetric matrix, its eigenvalues rectified first.

    Args:
        matrix: ``[..., D, D]``, float32 or float64; its symmetric part counts.
        clip: Bounds of the eigenvalues (Eq. 11-12).
        gradient: ``exact``, or ``paper`` for Eq. 20-24 with infinities replaced by zero.
    """
    out: Tensor = _SpectralMap.apply(matrix, "log", clip, gradient, False)  # type: ignore[no-untyped-call]
    return out


def matrix_sqrt(
    matrix: Tensor,
    clip: tuple[float, float] = (1e-5, 1e5),
    gradient: Gradient = "exact",
    scale: Scale = "none",
    method: Literal["eigh", "newton-schulz"] = "eigh",
) -> Tensor:
    """Sqrt-E of Eq. 10: the square root of a symmetric matrix, its eigenvalues rectified first.

    Args:
        matrix: ``[..., D, D]``, float32 or float64; its symmetric part counts.
        clip: Bounds of the eigenvalues (Eq. 11-12). Newton-Schulz applies the lower one only, and never one below
            its own floor of 4e-6 (float32) or 1e-13 (float64) of the Frobenius norm.
        gradient: ``exact``, or ``paper`` for Eq. 20-23, 25 with infinities replaced by zero.
        scale: ``leading`` divides the root by its largest eigenvalue, as the gradient of Eq. 25 implies.
        method: ``eigh``, or ``newton-schulz`` for matrix products only (export, and GPUs where a batched eigh is
            slow); the latter takes ``scale="none"`` and the exact gradient.
    """
    if method == "newton-schulz":
        if scale != "none" or gradient != "exact":
            raise ValueError("method='newton-schulz' is allowed with scale='none' and gradient='exact' only")
        return _newton_schulz_sqrt(matrix, clip[0])
    out: Tensor = _SpectralMap.apply(matrix, "sqrt", clip, gradient, scale == "leading")  # type: ignore[no-untyped-call]
    return out


#: The spectral layer for each ``normalisation`` of a configuration.
LAYERS: dict[str, Callable[[Tensor, MGCAPConfig], Tensor]] = {
    "bilinear": lambda matrix, config: matrix,
    "log": lambda matrix, c: matrix_log(matrix, c.clip, c.gradient),
    "sqrt": lambda matrix, c: matrix_sqrt(matrix, c.clip, c.gradient, c.spectral_scale, c.spectral_method),
}
#: Those of the package, whatever is added to or put in place of them.
OWN = dict(LAYERS)


# --- matrix products only -------------------------------------------------------------------------------------
#
# The scaled Newton-Schulz iteration x <- a x (3 - a^2 x^2) / 2 drives every number of [l, 1] to 1; the factors a
# depend on l alone (Chen and Chow, 2014). On a matrix it gives the sign; on block matrices the square root
# ([[0, A], [I, 0]]) and the solution of a Lyapunov equation ([[A, Q], [0, -A]]), hence the backward passes.


def _schedule(lowest: float, dtype: torch.dtype) -> list[float]:
    """The factors a that bring [lowest, 1] to 1 within the rounding of ``dtype``."""
    factors: list[float] = []
    tolerance = torch.finfo(dtype).eps
    while 1 - lowest > tolerance and len(factors) < 100:
        a = math.sqrt(3 / (1 + lowest + lowest * lowest))
        lowest = min(0.5 * a * lowest * (3 - (a * lowest) ** 2), 1.0)
        factors.append(a)
    return factors


def _solve_lyapunov(a: Tensor, q: Tensor, lowest: float) -> Tensor:
    """X with A X + X A = Q for a symmetric A whose eigenvalues are at least ``lowest`` of its Frobenius norm."""
    size = torch.linalg.matrix_norm(a, keepdim=True).clamp_min(torch.finfo(a.dtype).tiny)
    a, q = a / size, q / size
    three = 3 * torch.eye(a.shape[-1], dtype=a.dtype, device=a.device)
    for factor in _schedule(lowest, a.dtype):
        step = three - factor**2 * (a @ a)
        q = (factor / 2) * (q @ step - factor**2 * (a @ (a @ q - q @ a)))
        a = (factor / 2) * (a @ step)
    return q / 2


class _MatrixAbs(torch.autograd.Function):
    """|X| = X sign(X); |X| d|X| + d|X| |X| = X dX + dX X gives the derivative."""

    @staticmethod
    def forward(ctx: Any, matrix: Tensor, lowest: float) -> Tensor:
        size = torch.linalg.matrix_norm(matrix, keepdim=True).clamp_min(torch.finfo(matrix.dtype).tiny)
        sign = matrix / size
        three = 3 * torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
        for factor in _schedule(lowest, matrix.dtype):
            sign = (factor / 2) * (sign @ (three - factor**2 * (sign @ sign)))
        out: Tensor = matrix @ sign
        out = (out + out.mT) / 2
        ctx.save_for_backward(matrix, out)
        ctx.lowest = lowest
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        matrix, absolute = ctx.saved_tensors
        inner = _solve_lyapunov(absolute, (grad + grad.mT) / 2, ctx.lowest)
        out = matrix @ inner
        total: Tensor = out + out.mT
        return total, None


class _NewtonSchulzRoot(torch.autograd.Function):
    """S = A^(1/2) by the coupled iteration; S dS + dS S = dA gives the derivative."""

    @staticmethod
    def forward(ctx: Any, matrix: Tensor, lowest: float) -> Tensor:
        size = torch.linalg.matrix_norm(matrix, keepdim=True)
        eye = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
        root, inverse = matrix / size, eye.expand_as(matrix)
        for factor in _schedule(math.sqrt(lowest), matrix.dtype):
            step = (factor / 2) * (3 * eye - factor**2 * (inverse @ root))
            root, inverse = root @ step, step @ inverse
        out: Tensor = (root + root.mT) / 2 * size.sqrt()
        ctx.save_for_backward(out)
        ctx.lowest = math.sqrt(lowest)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (root,) = ctx.saved_tensors
        return _solve_lyapunov(root, (grad + grad.mT) / 2, ctx.lowest), None


def _newton_schulz_sqrt(matrix: Tensor, lower: float) -> Tensor:
    """Rectify as max(G, eps) = (G + eps + |G - eps|) / 2, then take the root."""
    matrix = (matrix + matrix.mT) / 2
    share = NEWTON_SCHULZ_FLOOR[matrix.dtype]
    size = torch.linalg.matrix_norm(matrix.detach(), keepdim=True)
    floor = (size * share).clamp_min(lower) * torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    absolute: Tensor = _MatrixAbs.apply(matrix - floor, share / 4)  # type: ignore[no-untyped-call]
    out: Tensor = _NewtonSchulzRoot.apply((matrix + floor + absolute) / 2, share / 2)  # type: ignore[no-untyped-call]
    return out
