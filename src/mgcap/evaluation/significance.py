"""Whether one method is better than another, or only luckier."""

from __future__ import annotations

from typing import Any

import numpy as np


def add_significance(rows: list[dict[str, Any]], ratio: float) -> None:
    """For each method how probable a difference from the best as large as this one is if there is none.

    By the t-test for resampled splits (Nadeau and Bengio 2003): the splits share images, so the variance of the mean
    difference is larger by ``1/n + test/train`` instead of ``1/n``.

    Args:
        rows: The best method first; each gets ``p_value``, None where there is nothing to compare.
        ratio: Test images for each training image.
    """
    from scipy.stats import t

    for row in rows:
        row["p_value"] = None
        first, own = np.array(rows[0]["runs"]), np.array(row["runs"])
        if row is rows[0] or row["mean"] is None or len(own) < 2:
            continue
        difference = first - own
        spread = difference.var(ddof=1) * (1 / len(own) + ratio)
        if spread > 0:
            row["p_value"] = float(2 * t.sf(abs(difference.mean()) / np.sqrt(spread), len(own) - 1))
        elif not difference.any():
            row["p_value"] = 1.0
