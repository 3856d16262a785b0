from __future__ import annotations

import pytest

from mgcap import MGCAPConfig
from mgcap.evaluation.ablation import ablation_studies, distinct_settings, subsets


def test_the_papers_subsets() -> None:
    labels = ["+".join(str(i + 1) for i in chosen) for chosen in subsets(3)]
    assert labels == ["1", "2", "3", "1+2", "2+3", "1+2+3"]
    assert subsets(1) == [(0,)] and subsets(2) == [(0,), (1,), (0, 1)]


def test_studies_of_the_paper() -> None:
    base = MGCAPConfig(preset="paper")
    studies = ablation_studies(base)
    assert list(studies["rotations"][1]) == ["1", "2", "3", "4", "6", "12"]
    assert studies["normalisation"][1]["bilinear"].signed_root and not studies["normalisation"][1]["sqrt"].signed_root
    settings, where = distinct_settings(studies)
    assert len(settings) == 6 + 5 + 2 + 5  # the base itself occurs in every study
    base_names = {where["rotations", "12"], where["normalisation", "sqrt"], where["granularities", "1+2+3"]}
    assert len(base_names) == 1
    assert set(ablation_studies(base, ["vector"])) == {"vector"}
    with pytest.raises(ValueError, match="no study 'colour'"):
        ablation_studies(base, ["colour"])
