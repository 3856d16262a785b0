"""Accuracy where neighbours are alike: what is held out are whole blocks of land, and blocks, not places, are counted.

Places beside each other show nearly the same, so a place whose neighbour was trained on is no test. Blocks of a few
hundred metres are held out together; how much they differ from each other says how sure the share is.
"""

from __future__ import annotations

import math
import warnings

import numpy as np
from scipy.special import stdtrit
from sklearn.model_selection import GroupKFold, StratifiedGroupKFold

from mgcap.evaluation.assessment import Estimate
from mgcap.typing import Array

#: Folds of a cross-validation over blocks, where there are as many blocks.
FOLDS = 5
#: Blocks below which they say nothing, of those that count as much as all.
LEAST_BLOCKS = 1.1


def block_numbers(places: Array, side: float) -> Array:
    """The number of the square block ``[n]`` that each place lies in; equal numbers are the same block.

    Args:
        places: ``[n, 2]``, in the unit of the side.
        side: Of a block.
    """
    if not (side > 0 and math.isfinite(side)):
        raise ValueError(f"the side of a block must be positive, not {side}")
    squares = np.floor((places - places.min(0)) / side) if len(places) else places
    found: Array = np.unique(squares, axis=0, return_inverse=True)[1].reshape(-1)
    return found


def block_folds(blocks: Array, targets: Array, folds: int = FOLDS, seed: int = 0) -> Array | None:
    """The fold ``[n]`` of each place, so that no block is in two; None if there is one block only.

    Classes are alike in all folds as far as blocks allow it.
    """
    count = min(folds, len(np.unique(blocks)))
    if count < 2:
        return None
    found = np.zeros(len(blocks), np.int64)
    smallest = np.bincount(targets)[np.unique(targets)].min()
    chooser = (
        StratifiedGroupKFold(count, shuffle=True, random_state=seed)
        if smallest >= count
        else GroupKFold(count)  # a class that is rarer than folds cannot be in all of them
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        for number, (_, members) in enumerate(chooser.split(targets, targets, blocks)):
            found[members] = number
    return found if len(np.unique(found)) > 1 else None


def blocked_share(right: Array, blocks: Array, weights: Array | None = None) -> Estimate:
    """The share of places that are right, with an interval that counts blocks.

    The variance is that of a ratio over blocks; it says how many independent places would be as sure, at least as many
    as there are blocks. Where places are spread unevenly, a few blocks decide the share, so blocks are counted by
    Kish's effective number of them. Wilson's interval for that number, with Student's quantile for few blocks, is wide
    where there are few labels, and not empty where all are right.

    Args:
        right: Which of the places are.
        blocks: The number of the block of each.
        weights: How many places each stands for, where some kinds were looked at more than others; one without.
    """
    right = np.asarray(right, np.float64)
    weights = np.ones(len(right)) if weights is None else np.asarray(weights, np.float64)
    numbers = np.unique(blocks, return_inverse=True)[1].reshape(-1)
    total = weights.sum()
    share = min(1.0, float(weights @ right / total))
    parts = np.bincount(numbers, weights) / total
    several = 1 / float((parts**2).sum())  # Kish's number of blocks
    if several < LEAST_BLOCKS:
        return Estimate(share, 0.0, 1.0)
    rest = np.bincount(numbers, weights * (right - share)) / total
    # a large block draws the share to itself, so its own rest is too small: by this factor, 1 - 1/n for n equal blocks
    kept = 1 - 2 * several * float((parts**3).sum()) + 1 / several
    variance = float((rest**2).sum()) / kept
    spread = share * (1 - share)
    most = float(total**2 / (weights**2).sum())  # places of one weight that would say as much
    effective = float(np.clip(spread / variance, several, most)) if variance > 0 and spread > 0 else several
    t = float(stdtrit(several - 1, 0.975))
    centre = (share + t * t / (2 * effective)) / (1 + t * t / effective)
    half = t / (1 + t * t / effective) * math.sqrt(spread / effective + t * t / (4 * effective**2))
    return Estimate(share, max(0.0, centre - half), min(1.0, centre + half), math.sqrt(spread / effective))
