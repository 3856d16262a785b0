from __future__ import annotations

import warnings

import pytest
import torch

from mgcap import MGCAP, MGCAPConfig
from mgcap import model as module
from mgcap.inference.forward import describe, embed
from mgcap.pooling import canonical_max, fuse
from mgcap.views import make_views

SMALL = {"backbone": "alexnet", "channels": 12, "size": 64, "granularities": 1.0}


def _model(**values: object) -> MGCAP:
    torch.manual_seed(0)
    return MGCAP(MGCAPConfig(**{**SMALL, **values})).eval()


def _images(count: int = 2, side: int = 80) -> torch.Tensor:
    return torch.rand(count, 3, side, side, generator=torch.Generator().manual_seed(1))


def test_the_papers_number_of_parameters() -> None:
    with torch.device("meta"):
        model = MGCAP(MGCAPConfig(preset="paper", vector="full", num_classes=45))
        shared = MGCAP(MGCAPConfig(preset="paper", vector="full", num_classes=45, share_granularities=True))
    assert sum(p.numel() for p in model.parameters()) == 55_986_714
    assert sum(p.numel() for p in shared.parameters()) == 55_986_714 - 2 * 14_714_688


@pytest.mark.parametrize("rotations", [4, 8, 12])
@pytest.mark.parametrize("frame", ["padded", "filled"])
def test_turning_the_image_changes_nothing_but_the_angle(rotations: int, frame: str) -> None:
    model = _model(rotations=rotations, frame=frame, granularities=(1.0, 0.9))
    images = _images()
    turned = images.rot90(1, (-2, -1))
    with torch.no_grad():
        a, b = model(images), model(turned)
    assert (a - b).norm() < 1e-3 * a.norm()
    before, after = model.canonical(images), model.canonical(turned)
    shifted = before.votes.roll(rotations // 4, dims=2)
    assert (shifted - after.votes).abs().sum() <= 0.02 * before.votes.sum()  # a few near ties may tip over
    clear = before.votes.sort(-1).values
    clear = clear[..., -1] > clear[..., -2] + 4
    assert torch.equal(((before.angles + 90) % 360)[clear], after.angles[clear])


def test_votes_cover_every_entry() -> None:
    model = _model(rotations=3, granularities=(1.0, 0.8))
    canonical = model.canonical(_images())
    assert canonical.angles.shape == (2, 2) and canonical.votes.shape == (2, 2, 3)
    assert (canonical.votes.sum(-1) == 13 * 13).all()
    assert set(canonical.angles.unique().tolist()) <= {0.0, 120.0, 240.0}


def test_the_line_step_by_step() -> None:
    """The descriptor is the composition of the public pieces, with every view made at once."""
    model = _model(rotations=3, granularities=(1.0, 0.7), share_granularities=False, frame="padded")
    images = _images()
    with torch.no_grad():
        views = make_views((images - model.mean) / model.std, (1.0, 0.7), 3, 64)
        pooled = []
        for s in range(2):
            features = model.backbones[s](views[:, s].flatten(0, 1)).flatten(2)
            matrices = embed(features, model.config, model.reduction).unflatten(0, (2, 3))
            pooled.append(canonical_max(matrices)[0])
        expected = describe(torch.stack(pooled, 1), model.config)
        assert torch.allclose(model.descriptor(images), expected, atol=1e-5)
        assert expected.shape == (2, 13 * 14 // 2)
        assert torch.equal(fuse(torch.stack(pooled, 1)), (pooled[0] + pooled[1]) / 2)


def test_chunks_of_rotations_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    model, images = _model(rotations=5), _images(3)
    with torch.no_grad():
        whole = model.descriptor(images)
        monkeypatch.setattr(module, "SAMPLED_VIEWS", 4)
        assert torch.allclose(model.descriptor(images), whole, atol=1e-5)
    with_graph = model.descriptor(images)
    assert with_graph.requires_grad and torch.allclose(with_graph, whole, atol=1e-5)


@pytest.mark.parametrize(
    "values",
    [
        {"normalisation": "log"},
        {"normalisation": "bilinear"},
        {"spectral_scale": "leading", "gradient": "paper"},
        {"spectral_method": "newton-schulz"},
        {"embedding": "covariance", "reduction": "learnt"},
        {"fusion": "sum", "fusion_norm": "frobenius", "vector": "full"},
        {"rotation_pooling": "mean", "feature_norm": "l2", "unbiased": True},
        {"share_granularities": False, "granularities": (1.0, 0.9)},
    ],
)
def test_every_choice_trains(values: dict) -> None:
    model = _model(rotations=2, num_classes=3, **values).train()
    loss = torch.nn.functional.cross_entropy(model(_images()), torch.tensor([0, 2]))
    loss.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and torch.isfinite(parameter.grad).all(), name
    assert model.backbones[0].features[0].weight.grad.abs().sum() > 0


def test_a_loss_falls_end_to_end() -> None:
    model = _model(rotations=2, num_classes=2, reduction="learnt").train()
    images, targets = _images(4), torch.tensor([0, 1, 0, 1])
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
    losses = []
    for _ in range(12):
        optimiser.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images), targets)
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] - 0.02


def test_any_image_size_and_bad_shapes() -> None:
    model = _model()
    with torch.no_grad():
        for shape in ((1, 3, 30, 50), (1, 3, 300, 300), (1, 3, 8, 8)):
            assert torch.isfinite(model(torch.rand(shape))).all()
        for shape in ((3, 64, 64), (1, 1, 64, 64)):
            with pytest.raises(ValueError, match=r"\[B, 3, H, W\]"):
                model(torch.rand(shape))


def test_padding_is_the_mean_colour() -> None:
    """A picture of the mean colour is all zeros after normalisation, so padded and filled frames agree on it."""
    padded, filled = _model(frame="padded"), _model(frame="filled")
    plain = padded.mean.expand(1, 3, 64, 64)
    with torch.no_grad():
        assert torch.allclose(padded.descriptor(plain), filled.descriptor(plain), atol=1e-4)


def test_few_views_are_alive_at_once_whatever_the_rotations() -> None:
    model = _model(rotations=36, granularities=(1.0, 0.9))
    seen: list[int] = []
    model.backbones[0].register_forward_pre_hook(lambda _, inputs: seen.append(len(inputs[0])))
    with torch.no_grad():
        model(_images(3, 32))
    assert max(seen) <= module.BACKBONE_VIEWS and sum(seen) == 3 * 36 * 2


def test_an_unfitted_pca_is_said_once() -> None:
    model, images = _model(rotations=1), _images(1)
    with pytest.warns(UserWarning, match="PCA of this model is not fitted") as said:
        model(images)
        model.descriptor(images)
    assert len(said) == 1
    fitted = _model(rotations=1)
    fitted.reduction.fitted.fill_(True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for quiet in (fitted, _model(rotations=1, reduction="learnt"), model):
            quiet(images)


def test_equivariance_is_measured() -> None:
    four = _model(rotations=4, granularities=(1.0, 0.9)).check_equivariance(tolerance=1e-3)
    assert set(four.descriptors) == set(four.logits) == {90, 180, 270} and four.worst < 1e-3
    assert _model(rotations=2).check_equivariance(angles=[180], tolerance=1e-3).worst < 1e-3
    one = _model(rotations=1)
    found = one.check_equivariance(_images())
    with torch.no_grad():
        upright, turned = (one.descriptor(images) for images in (_images(), _images().rot90(1, (-2, -1))))
    expected = ((upright - turned).norm(dim=1) / upright.norm(dim=1)).max().item()
    assert found.descriptors[90] == pytest.approx(expected) and expected > 1e-2
    with pytest.raises(AssertionError, match=r"rotated images change the model's output by 0\.\d+, not 0\.001"):
        one.check_equivariance(_images(), tolerance=1e-3)
    with pytest.raises(ValueError, match="multiples of 90"):
        one.check_equivariance(angles=[45])
