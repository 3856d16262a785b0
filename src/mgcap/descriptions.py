"""What each configuration value means, in a sentence: for the models' fields and for the help of the command line.

Nothing large is imported here, so that ``mgcap COMMAND --help`` need not wait for torch.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from mgcap.errors import ValuesError, did_you_mean

if TYPE_CHECKING:
    from pydantic import ValidationError

#: The fields of :class:`mgcap.MGCAPConfig`.
MODEL = {
    "preset": "A whole configuration by name: compact, tiny (for small devices), paper (as printed) or authors-code.",
    "num_classes": "Number of classes; training takes it from the images.",
    "size": "Side in pixels that each view is resized to.",
    "field_of_view": "Central part of each side of the image that is looked at.",
    "granularities": "Crop ratios, each with a matrix of its own, as 1.0,0.9,0.8.",
    "rotations": "Number of rotations by which each crop is seen, evenly spread over 360 degrees.",
    "frame": "Frame of a rotated crop: filled with the image around it, or padded.",
    "corners": "What lies outside of the image: zero (the mean colour) or mirror.",
    "backbone": "Network that computes local features, as vgg16, resnet50-v1, timm:NAME or one of your own.",
    "layer": "Layer of the backbone whose output is taken, as stage3; by default the one it is best known for.",
    "activated": "Take the layer's output after its activation (true) or before it (false).",
    "architecture": "What a backbone hf:NAME is; found out when the configuration is made, not to be given by hand.",
    "share_granularities": "One network for all granularities (true), or one for each (false).",
    "reduction": "How channels are reduced: none, pca (fitted) or learnt (trained with the network).",
    "channels": "Number of channels after the reduction.",
    "feature_norm": "Scale of the local features: none, rms (mean square 1) or l2.",
    "embedding": "Matrix of a view: gaussian (mean and covariance) or covariance.",
    "unbiased": "Divide covariances by N - 1 instead of N.",
    "ridge": "Added to the diagonal of each matrix.",
    "rotation_pooling": "How matrices are pooled over rotations: max (canonical appearance) or mean.",
    "fusion": "How granularities are combined: mean or sum.",
    "fusion_norm": "Norm of each granularity's matrix before that: none or frobenius.",
    "normalisation": "What is done to eigenvalues: sqrt, log or bilinear (nothing).",
    "clip": "Smallest and largest eigenvalue, as [1e-5,1e5]; others are moved there.",
    "gradient": "Gradient of the spectral layer: exact, or paper (infinities replaced by zero, as printed).",
    "spectral_scale": "Scale of the square root's spectrum: none, or leading (the largest eigenvalue becomes 1).",
    "spectral_method": "How the square root is computed: eigh, or newton-schulz (matrix products only).",
    "vector": "Which entries of the matrix the head sees: triangle or full.",
    "signed_root": "Take the signed square root of each entry; by default with normalisation=bilinear only.",
}

#: The fields of :class:`mgcap.Finetune`.
FINETUNE = {
    "epochs": "Epochs of the second stage, over everything that is trained.",
    "batch": "Images in one step, over all processes together.",
    "lr": "Learning rate of the second stage.",
    "optimiser": "Optimiser: sgd (with momentum), adam or adamw.",
    "momentum": "Momentum of sgd.",
    "weight_decay": "Weight decay.",
    "schedule": "Learning rate over time: step (times decay every decay_epochs), cosine (falls to zero) or constant.",
    "decay": "Factor of schedule=step.",
    "decay_epochs": "Epochs between two steps of schedule=step.",
    "head": "How the first stage trains the head on frozen features: sgd as in the paper, or exact, solved to "
    "convergence with cross-validated regularisation.",
    "head_epochs": "Epochs of the first stage with head=sgd.",
    "head_lr": "Learning rate of the first stage with head=sgd.",
    "head_decay_epochs": "Epochs after which that rate falls.",
    "train_from": "First backbone layer that is trained, as conv5_1 or stage4, or all; the layers before it stay as "
    "they are.",
    "copies": "With train_from: keep what the frozen layers give for this number of augmented versions of each image, "
    "and use a different one in each epoch; 0 augments anew and keeps nothing.",
    "granularities_a_step": "Look at this number of the granularities in each step, chosen at random; all by default. "
    "The finished model looks at all; needs one network for all granularities.",
    "rotations_a_step": "Look at this number of the rotations in each step, chosen at random; all by default.",
    "crop": "Share of each side that a random crop keeps; by default the field of view of the configuration.",
    "horizontal_flip": "Flip images left to right at random.",
    "vertical_flip": "Flip images upside down at random.",
    "random_angle": "Rotate this share of the images by any angle, with mirrored corners.",
    "colour": "Change brightness, contrast, saturation and balance of the channels, each by at most this share.",
    "mixup": "Mix each image, or its kept views, with another one and their labels likewise, in a proportion drawn "
    "from Beta(mixup, mixup); 0 mixes nothing.",
    "label_smoothing": "Share of each label that is spread over all classes, as 0.1.",
    "class_weights": "none, auto (rare classes count more), or a weight for each class by name; on the command line a "
    "CSV with the columns class and weight.",
    "validation": "Share of the training images that are held out to watch, as 0.1.",
    "patience": "Stop after this number of epochs without a better validation accuracy; needs validation.",
    "ema": "Decay of an average of the weights over the steps, which is then the result; 0 takes the last weights.",
    "blend": "Share of the weights before the second stage in the result (Wortsman et al. 2022).",
    "precision": "Precision of the second stage: 32 or bf16.",
    "chunk": "Views that go through the backbone with a graph together; by default as many as the memory allows.",
    "checkpoint_minutes": "Minutes between checkpoints, besides those after each epoch.",
}


def config_sentence(error: ValidationError, known: Iterable[str] | None = None) -> str:
    """What is wrong with a configuration, or with other values whose names are ``known``, in one sentence."""
    names = list(MODEL if known is None else known)
    kind = "a configuration value" if set(names) == set(MODEL) else "an option"
    parts = []
    for problem in error.errors():
        where = ".".join(str(part) for part in problem["loc"])
        message = str(problem["msg"]).removeprefix("Value error, ")
        given = problem["input"]
        if problem["type"] == "extra_forbidden":
            parts.append(f"'{where}' is not {kind}{did_you_mean(where, names)}; there are {', '.join(names)}")
        elif where:
            expected = re.findall(r"'([^']*)'", str(problem.get("ctx", {}).get("expected", "")))
            parts.append(f"{where}: {message} (given: {given!r}){did_you_mean(given, expected)}")
        else:
            parts.append(message)
    return "; ".join(parts)


@contextmanager
def values_checked(before: str = "", known: Iterable[str] | None = None) -> Iterator[None]:
    """Turn what pydantic says of values into a :class:`ValuesError` of one sentence, see :func:`config_sentence`."""
    from pydantic import ValidationError

    try:
        yield
    except ValidationError as error:
        raise ValuesError(before + config_sentence(error, known)) from error
