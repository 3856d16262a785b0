"""The parts of a plan, computed here or elsewhere: chunks of tiles of a map, blocks of cells of an index."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from mgcap.errors import RasterError
from mgcap.geo.blocks import Cells, IndexPlan, describe_cells
from mgcap.geo.plan import Plan
from mgcap.geo.tiles import Answers, answer_chunk
from mgcap.persistence.files import sha256_of

if TYPE_CHECKING:
    from mgcap.classifier import SceneClassifier

#: What comes of a part.
Part = Answers | Cells
#: Computes parts of a plan, in any order, and gives each as it is done.
Workers = Callable[[Plan, Iterable[int]], Iterable[tuple[int, Part]]]


@lru_cache(maxsize=2)
def load_for(model: str, fingerprint: str, engine: str) -> SceneClassifier:
    """The classifier of a plan, once per process."""
    from mgcap.classifier import SceneClassifier

    if sha256_of(Path(model)) != fingerprint:
        raise RasterError(f"{model} is not the model that the map was planned with")
    return SceneClassifier.load(model, engine=engine)


def compute_part(classifier: SceneClassifier, plan: Plan, number: int) -> Part:
    """Compute a part of a plan."""
    if isinstance(plan, IndexPlan):
        return describe_cells(classifier.model_, classifier.engine_, plan, number)
    return answer_chunk(classifier.model_, classifier.engine_, plan, number, classifier.sample_)


def compute_here(classifier: SceneClassifier) -> Workers:
    """Parts one after the other in this process."""

    def work(plan: Plan, numbers: Iterable[int]) -> Iterator[tuple[int, Part]]:
        for number in numbers:
            yield number, compute_part(classifier, plan, number)

    return work
