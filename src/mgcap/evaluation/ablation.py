"""The paper's ablation studies and some of our own, all from one pass over the views.

The exact and the paper's gradient of the spectral layer are compared where the network is fine-tuned: with a frozen
backbone no gradient goes through it.
"""

from __future__ import annotations

from mgcap.config import MGCAPConfig
from mgcap.errors import did_you_mean
from mgcap.inference.forward import rotation_counts

#: For each study its title and the settings by label.
Studies = dict[str, tuple[str, dict[str, MGCAPConfig]]]

#: The study that needs fine-tuning.
GRADIENT = "gradient"

#: Settings of one value each: name, title, values.
_ONE_VALUE: tuple[tuple[str, str, tuple[object, ...]], ...] = (
    ("normalisation", "spectral layer", ("bilinear", "log", "sqrt")),
    ("embedding", "matrix of a view", ("covariance", "gaussian")),
    ("rotation_pooling", "over rotations", ("mean", "max")),
    ("feature_norm", "scale of the features", ("l2", "rms")),
    ("activated", "last ReLU", (False, True)),
    ("vector", "vector of the matrix", ("full", "triangle")),
    (GRADIENT, "gradient of the spectral layer", ("paper", "exact")),
)


def subsets(count: int) -> list[tuple[int, ...]]:
    """Each granularity alone, neighbours in pairs, and all: 1, 2, 3, 1+2, 2+3, 1+2+3 for three."""
    alone = [(i,) for i in range(count)]
    pairs = [(i, i + 1) for i in range(count - 1)] if count > 2 else []
    return [*alone, *pairs, *([tuple(range(count))] if count > 1 else [])]


def ablation_studies(base: MGCAPConfig, names: list[str] | None = None, finetuned: bool = False) -> Studies:
    """The studies around a configuration.

    Args:
        base: The full configuration.
        names: Which studies; all that make sense by default.
        finetuned: Whether the network is fine-tuned in every run.

    Raises:
        ValueError: If there is no such study.
    """
    parts = {
        "+".join(str(i + 1) for i in chosen): base.replace(granularities=tuple(base.granularities[i] for i in chosen))
        for chosen in subsets(len(base.granularities))
    }
    studies: Studies = {
        "granularities": (f"granularities of {', '.join(f'{g:g}' for g in base.granularities)}", parts),
        "rotations": ("rotations", {str(c): base.replace(rotations=c) for c in rotation_counts(base.rotations)}),
    }
    for name, title, values in _ONE_VALUE:
        studies[name] = (title, {str(value).lower(): base.replace(**{name: value}) for value in values})
    unknown = [name for name in names or () if name not in studies]
    if unknown:
        hint = did_you_mean(unknown[0], studies)
        raise ValueError(f"there is no study '{unknown[0]}'{hint}; there are {', '.join(studies)}")
    if GRADIENT in (names or ()) and not finetuned:
        raise ValueError("the study 'gradient' needs `finetune`: a frozen network has no gradient")
    wanted = names or [name for name in studies if finetuned or name != GRADIENT]
    return {name: study for name, study in studies.items() if name in wanted}


def distinct_settings(studies: Studies) -> tuple[dict[str, MGCAPConfig], dict[tuple[str, str], str]]:
    """Settings without repetition by name, and for each study and label the name of its setting."""
    settings: dict[str, MGCAPConfig] = {}
    known: dict[str, str] = {}
    where: dict[tuple[str, str], str] = {}
    for study, (_, labels) in studies.items():
        for label, config in labels.items():
            values = config.model_dump_json()
            if values not in known:
                known[values] = f"{study}-{label}"
                settings[known[values]] = config
            where[study, label] = known[values]
    return settings, where
