from __future__ import annotations

import numpy as np
import pytest
from sklearn.svm import SVC

from mgcap.baselines.svm import count_numbers, kernel_svm, linear_svm, pairwise_svm

RNG = np.random.default_rng(0)
TARGETS = np.repeat(np.arange(4), 10)
CENTRES = RNG.normal(size=(4, 50))


def rows() -> np.ndarray:
    return CENTRES[TARGETS] + RNG.normal(size=(40, 50))


def test_machines_for_pairs_decide_as_libsvm_with_its_own_linear_kernel() -> None:
    train, test = rows(), rows()
    ours = pairwise_svm(0).fit(train, TARGETS)
    theirs = SVC(kernel="linear", C=1.0).fit(train, TARGETS)
    np.testing.assert_array_equal(ours.predict(test), theirs.predict(test))
    kept = theirs.support_vectors_.size + theirs.dual_coef_.size + theirs.intercept_.size
    assert count_numbers(ours) == kept


@pytest.mark.parametrize("make", [linear_svm, kernel_svm, pairwise_svm])
def test_machines_learn_and_have_numbers(make) -> None:  # type: ignore[no-untyped-def]
    machine = make(0).fit(rows(), TARGETS)
    assert (machine.predict(rows()) == TARGETS).mean() > 0.9
    assert count_numbers(machine) >= 4 * 50
