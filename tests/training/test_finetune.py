from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from mgcap import MGCAP, Finetune, MGCAPConfig, SceneClassifier
from mgcap.data.augmentation import augment
from mgcap.data.folders import open_folder
from mgcap.data.stream import to_tensor
from mgcap.errors import DataError, MgcapError
from mgcap.runtime import Runtime
from mgcap.training.distributed import open_fabric
from mgcap.training.finetune import Finetuner
from mgcap.training.setup import TrainingSet
from tests.conftest import TINY

TARGETS = [0, 1, 2, 0, 1, 2]
#: Stripes that lie closer from class to class, with noise.
IMAGES = torch.stack([(torch.arange(64) // 2 ** (t + 1) % 2).expand(3, 70, 64) * 0.8 for t in TARGETS])
IMAGES += 0.2 * torch.rand(6, 3, 70, 64, generator=torch.Generator().manual_seed(1))


def _model(**changes: Any) -> MGCAP:
    torch.manual_seed(0)
    config = {"backbone": "alexnet", "size": 64, "rotations": 2, "granularities": (1.0, 0.8), "reduction": "learnt"}
    return MGCAP(MGCAPConfig(**{**config, "channels": 6, "num_classes": 3, **changes}))


def _tuner(
    model: MGCAP, recipe: Finetune, folder: Path | None = None, seed: int = 0, validation: Any = ()
) -> Finetuner:
    fabric = open_fabric(torch.device("cpu"))
    data = TrainingSet(list(IMAGES), TARGETS, "abc")
    runtime = Runtime(seed=seed, cache=False)
    return Finetuner(model, recipe, data, fabric, runtime=runtime, folder=folder, validation=TrainingSet(*validation))


def test_an_epoch_is_what_plain_torch_does() -> None:
    """Same batches, same crops, autograd on the whole model, torch's own weighted loss."""
    recipe = Finetune(epochs=2, batch=6, crop=0.9, lr=0.05, chunk=3, class_weights={"a": 1, "b": 2, "c": 3})
    model = _model(field_of_view=0.9)
    plain = copy.deepcopy(model).eval()
    plain.config = plain.config.replace(field_of_view=1.0)
    history = _tuner(model, recipe, seed=7).run()
    groups = [
        {"params": [p for p in plain.parameters() if p is not plain.head.weight]},
        {"params": [plain.head.weight], "lr": 0.05 * 7, "weight_decay": 5e-4 / 7},  # 6 channels and the corner
    ]
    optimiser = torch.optim.SGD(groups, 0.05, 0.9, weight_decay=5e-4)
    losses = []
    for epoch in range(2):
        images = torch.stack([augment(IMAGES[i], seed=(7, epoch, i), crop=0.9) for i in range(6)])
        loss = F.cross_entropy(plain(images), torch.tensor(TARGETS), torch.tensor([1.0, 2.0, 3.0]))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert [row["loss"] for row in history.steps] == pytest.approx(losses, rel=1e-4)
    expected = dict(plain.named_parameters())
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter, expected[name].detach(), rtol=1e-3, atol=1e-5)


def test_it_learns_and_leaves_frozen_layers_alone() -> None:
    model = _model()
    before = copy.deepcopy(model)
    recipe = Finetune(epochs=40, batch=6, lr=3e-3, optimiser="adam", schedule="constant", train_from="conv4")
    history = _tuner(model, recipe).run()
    assert history.epochs[-1]["loss"] < 0.7 * history.epochs[0]["loss"]
    for (name, p), (_, q) in zip(model.named_parameters(), before.named_parameters(), strict=True):
        number = int(name.split(".")[3]) if name.startswith("backbones") else 99
        assert torch.equal(p, q) == (number < 8), name
        assert not p.requires_grad


def test_each_step_looks_at_some_of_the_views() -> None:
    recipe = Finetune(
        epochs=12, batch=6, crop=1.0, lr=1e-12, horizontal_flip=False, granularities_a_step=1, rotations_a_step=1
    )
    model = _model()
    single = [_model(granularities=(g,), rotations=1).eval() for g in (1.0, 0.8)]
    turns = (IMAGES, IMAGES.flip(-2, -1))
    with torch.no_grad():
        expected = [F.cross_entropy(m(turn), torch.tensor(TARGETS)).item() for m in single for turn in turns]
    seen = [row["loss"] for row in _tuner(model, recipe).run().steps]
    which = [min(range(4), key=lambda k: abs(loss - expected[k])) for loss in seen]
    assert seen == pytest.approx([expected[k] for k in which], rel=1e-5) and set(which) == {0, 1, 2, 3}


@pytest.mark.parametrize(
    "more", [{}, {"ema": 0.8, "blend": 0.3}, {"optimiser": "adamw"}, {"train_from": "conv3", "copies": 2}]
)
def test_a_killed_run_goes_on_with_the_same_losses(tmp_path: Path, more: dict[str, Any]) -> None:
    recipe = Finetune(epochs=3, batch=2, checkpoint_minutes=0, **more)
    watched = {"validation": (list(IMAGES[:2]), TARGETS[:2])}
    model = _model()
    whole = _tuner(model, recipe, tmp_path / "whole", **watched).run()

    class KilledError(Exception):
        pass

    halted = _tuner(_model(), recipe, tmp_path / "halted", **watched)
    step = halted._step

    def fail(*arguments: Any) -> None:
        if len(halted.history.steps) == 5:  # in the middle of the second epoch
            raise KilledError
        step(*arguments)

    halted._step = fail  # type: ignore[method-assign]
    with pytest.raises(KilledError):
        halted.run()
    again = _model()
    tuner = _tuner(again, recipe, tmp_path / "halted", **watched)
    tuner.resume()
    assert (tuner.history.epoch, tuner.history.step) == (1, 2)
    history = tuner.run()
    assert history.steps == whole.steps and history.epochs == whole.epochs
    for p, q in zip(model.parameters(), again.parameters(), strict=True):
        assert torch.equal(p, q)
    steps = (tmp_path / "halted" / "steps.csv").read_text()
    assert steps == (tmp_path / "whole" / "steps.csv").read_text() and steps.count("\n") == 10


def test_a_blend_lies_between_the_weights_before_and_after() -> None:
    recipe = Finetune(epochs=2, batch=3, lr=0.05)
    before, after, between = _model(), _model(), _model()
    _tuner(after, recipe).run()
    _tuner(between, recipe.model_copy(update={"blend": 0.25})).run()
    ends = zip(before.parameters(), after.parameters(), between.parameters(), strict=True)
    assert all(torch.allclose(b, 0.25 * first + 0.75 * last, atol=1e-6) for first, last, b in ends)
    assert not torch.allclose(before.head.weight, after.head.weight, atol=1e-3)


def test_the_probabilities_at_the_end_are_those_of_the_best_weights() -> None:
    """An absurd rate makes every epoch worse than none, so the averaged weights are not the best."""
    recipe = Finetune(epochs=2, batch=3, lr=30.0, ema=0.5, validation=0.1, schedule="constant")
    model = _model()
    tuner = _tuner(model, recipe, validation=(list(IMAGES), TARGETS))
    with torch.no_grad():
        expected = model.eval()(IMAGES).double().softmax(1)
    tuner.history.best = 2.0  # nothing gets better than this
    tuner.best = [p.detach().clone() for p in tuner.parameters]
    tuner.run()
    assert torch.allclose(tuner.validation_probabilities(), expected, atol=1e-5)


def test_kept_views_give_the_same_history() -> None:
    """One copy is the image itself, so without augmentation nothing changes but the rounding of what is kept."""
    recipe = Finetune(epochs=2, batch=3, train_from="conv3", horizontal_flip=False, lr=0.01)
    sampled = _tuner(_model(), recipe).run()
    kept = _tuner(_model(), recipe.model_copy(update={"copies": 1})).run()
    assert [r["loss"] for r in kept.steps] == pytest.approx([r["loss"] for r in sampled.steps], rel=5e-3)


def test_early_stopping_takes_the_best_weights() -> None:
    """With an absurd rate it does not get better than before."""
    recipe = Finetune(epochs=10, batch=3, lr=30.0, patience=2, validation=0.1, schedule="constant")
    model = _model()
    with torch.no_grad():  # a head that is right to begin with
        descriptors = model.eval().descriptor(IMAGES)
        model.head.weight.copy_(100 * torch.stack([descriptors[k] - descriptors.mean(0) for k in range(3)]))
    tuner = _tuner(model, recipe, validation=(list(IMAGES), TARGETS))
    before = tuner.validate()
    history = tuner.run()
    assert before[1] == 1.0 and history.epoch == history.best_epoch + 2 == 2
    assert tuner.validate() == pytest.approx(before, rel=1e-5)


def test_the_average_of_the_weights_is_the_result() -> None:
    recipe = Finetune(epochs=1, batch=2, ema=0.5, lr=0.1)
    model, last = _model(), _model()
    start = copy.deepcopy(model)
    tuner = _tuner(model, recipe)
    seen: list[torch.Tensor] = []
    step = tuner._step

    def record(*arguments: Any) -> None:
        step(*arguments)
        seen.append(model.head.bias.detach().clone())

    tuner._step = record  # type: ignore[method-assign]
    tuner.run()
    expected = start.head.bias.detach()
    for value in seen:
        expected = 0.5 * expected + 0.5 * value
    torch.testing.assert_close(model.head.bias, expected)
    _tuner(last, recipe.model_copy(update={"ema": 0.0})).run()
    assert torch.equal(last.head.bias, seen[-1])


def _options(**more: Any) -> dict[str, Any]:
    return {**TINY, "finetune": {"epochs": 1, "batch": 6, "head_epochs": 2, **more}}


def test_a_finetuned_classifier_is_saved_whole(scenes: Path, tmp_path: Path) -> None:
    folder = open_folder(scenes)
    model = SceneClassifier(**_options(lr=0.01)).fit(folder.paths, folder.labels, folder=tmp_path / "run")
    model.save(tmp_path / "m.mgcap")
    again = SceneClassifier.load(tmp_path / "m.mgcap", engine="torch")
    assert again.predict_proba(folder.paths) == pytest.approx(model.predict_proba(folder.paths), abs=1e-6)
    frozen = SceneClassifier(**TINY).fit(folder.paths, folder.labels)
    first = next(iter(frozen.model_.backbones.parameters()))
    assert not torch.equal(first, next(iter(again.model_.backbones.parameters())))
    assert model.provenance_["finetune"]["epochs"] == 1 and len(model.metrics_["epochs"]) == 1
    assert list((tmp_path / "run" / "tensorboard").iterdir())


def test_the_logits_after_training_are_those_of_the_classifier(scenes: Path) -> None:
    """The way through the gradient cache and the way through the engine agree."""
    folder = open_folder(scenes)
    model = SceneClassifier(**_options(head="exact", validation=0.3)).fit(folder.paths, folder.labels)
    images = torch.stack([to_tensor(path) for path in folder.paths])
    with torch.no_grad():
        expected = model.model_(images).softmax(1).numpy()
    assert model.predict_proba(folder.paths) == pytest.approx(expected, abs=1e-5)
    assert 0 < model.reject_threshold(0.1) <= 1


def test_a_checkpoint_belongs_to_its_run(scenes: Path, tmp_path: Path) -> None:
    folder = open_folder(scenes)
    first = SceneClassifier(**_options()).fit(folder.paths, folder.labels, folder=tmp_path)
    with pytest.raises(DataError, match="not finished; add `resume`"):
        SceneClassifier(**_options()).fit(folder.paths, folder.labels, folder=tmp_path)
    with pytest.raises(DataError, match="a run with other options"):
        SceneClassifier(**_options(lr=0.5)).fit(folder.paths, folder.labels, folder=tmp_path, resume=True)
    with pytest.raises(DataError, match="a run with other images"):
        SceneClassifier(**_options()).fit(folder.paths[1:], folder.labels[1:], folder=tmp_path, resume=True)
    again = SceneClassifier(**_options()).fit(folder.paths, folder.labels, folder=tmp_path, resume=True)
    assert again.history_ is not None and first.history_ is not None
    assert again.history_.steps == first.history_.steps
    assert torch.equal(again.model_.head.weight, first.model_.head.weight)
    with pytest.raises(MgcapError, match="no layer 'conv9'"):
        SceneClassifier(**_options(train_from="conv9")).fit(folder.paths, folder.labels)


def test_mixed_images_are_learnt_with_mixed_labels() -> None:
    """An epoch with mixup against images, labels and loss put together by hand."""
    recipe = Finetune(epochs=1, batch=6, crop=1.0, horizontal_flip=False, lr=0.05, mixup=0.4, label_smoothing=0.1)
    model = _model(field_of_view=1.0)
    plain = copy.deepcopy(model).eval()
    tuner = _tuner(model, recipe, seed=3)
    others, shares = tuner.feed.partners(range(6), 0)
    assert len(set(others)) > 1 and bool((shares >= 0.5).all()) and bool((shares < 1).all())
    share = shares.float()[:, None]
    labels = F.one_hot(torch.tensor(TARGETS), 3).float()
    labels = 0.9 * (share * labels + (1 - share) * labels[others]) + 0.1 / 3
    images = share[..., None, None] * IMAGES + (1 - share[..., None, None]) * IMAGES[others]
    expected = -(labels * plain(images).log_softmax(1)).sum(1).mean()
    history = tuner.run()
    assert history.steps[0]["loss"] == pytest.approx(expected.item(), rel=1e-4)
