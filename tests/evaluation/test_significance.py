from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from mgcap.evaluation.significance import add_significance


def test_significance_against_the_plain_paired_test() -> None:
    """Where no image is shared between test and training the correction is gone and scipy's paired test is left."""
    rng = np.random.default_rng(0)
    first = (90 + rng.normal(size=8)).tolist()
    other = (89 + rng.normal(size=8)).tolist()
    rows: list[dict[str, Any]] = [{"runs": runs, "mean": float(np.mean(runs))} for runs in (first, other, first)]
    add_significance(rows, 0.0)
    assert rows[0]["p_value"] is None and rows[2]["p_value"] == 1.0
    assert rows[1]["p_value"] == pytest.approx(stats.ttest_rel(first, other).pvalue)
    plain = rows[1]["p_value"]
    add_significance(rows, 0.25)
    assert rows[1]["p_value"] > plain
