"""A project while people label it: what is labelled, and the map that follows every label.

Labels are written first and answered at once. One thread refits: it always takes the newest labels, so that many in a
row are one refit, and everything else is answered by other threads meanwhile.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mgcap.errors import DataError, MgcapError
from mgcap.evaluation.assessment import Estimate
from mgcap.evaluation.spatial import block_numbers, blocked_share
from mgcap.labelling.curve import Point
from mgcap.labelling.kept_curve import KeptCurve
from mgcap.labelling.learner import LEAST_LABELS, Learned, Learner, Prior
from mgcap.labelling.pool import Pool, open_pool
from mgcap.labelling.project import Project
from mgcap.labelling.store import Cell, Label, decided

if TYPE_CHECKING:
    from mgcap.classifier import SceneClassifier

log = logging.getLogger("mgcap.labelling")

#: Seconds without a label before the learning curve is worked out.
PAUSE = 0.8


class Measured(NamedTuple):
    """The accuracy of the map, by labels that were held out with their blocks of land.

    Suggested cells are the hardest ones, on which the map is far less often right than elsewhere. So they teach, and
    the others measure, where there are enough of these.
    """

    estimate: Estimate
    labels: int  #: that it is measured by
    suggested: bool  #: whether suggested cells are among them


@dataclass(frozen=True, eq=False)
class Fitted:
    """The map as it follows from labels.

    Attributes:
        revision: Of the state that it belongs to.
        labels: The class of each cell of the pool that has one.
        learned: None where there are too few classes yet.
        measured: How right it is, where that can be said.
        curve: Accuracy by the number of labels, where it was worked out.
    """

    revision: int
    labels: dict[int, int]
    learned: Learned | None
    measured: Measured | None = None
    curve: Sequence[Point] | None = None


class Live:
    """A project that is labelled.

    Args:
        project: Open.
        classifier: Gives the base model when it is asked for; labelling without its classes does not need it.
    """

    def __init__(self, project: Project, classifier: Callable[[], SceneClassifier]) -> None:
        self.project, self.classifier = project, classifier
        self.pool: Pool = open_pool(project.indexes)
        self.learner = Learner(self.pool, project.about.block)
        self._beside = Learner(self.pool, project.about.block)  # for the thread of the curve
        self._curves = {hard: KeptCurve(partial(self._first, hard)) for hard in (False, True)}
        self._head = self._model_head() if project.about.prior else None
        self._changed = threading.Condition()
        self._seen = project.version()
        #: Grows with everything that a page shows, also over restarts.
        self.revision = time.time_ns() // 1_000_000
        #: The revision of the last change of labels or classes, which asks for a refit.
        self.wanted = self.revision
        self.said: dict[Cell, list[Label]] = {}
        self.agreed: dict[Cell, int] = {}
        self.conflicts: dict[Cell, list[Label]] = {}
        for cell, labels in project.store.labels().items():
            self._take(cell, labels)
        self.fitted = Fitted(0, {}, None)
        self.problem = ""
        self.refitting = True
        self._closed, self._done = False, 0
        self._threads = [threading.Thread(target=own, daemon=True) for own in (self._refit, self._draw)]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Stop refitting, and close the project."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(30)
        self.project.close()

    def _model_head(self) -> tuple[Any, Any, list[str]]:
        """The head of the base model in vectors of the indexes, and its labels."""
        from mgcap.inference.fingerprints import descriptor_fingerprint
        from mgcap.inference.projection import projection_for

        own = self.classifier()
        if self.project.indexes[0].about.descriptor != descriptor_fingerprint(own.model_):
            raise DataError(f"{self.project.indexes[0].name} was made with other descriptors than the project's model")
        weight, bias = projection_for(own.model_).fold(own.model_.head)
        return weight.float(), bias.float(), [str(label) for label in own.classes_]

    def prior(self) -> Prior | None:
        """The base model's head for the classes of the project."""
        if self._head is None:
            return None
        import torch

        weight, bias, labels = self._head
        classes = self.project.classes
        size = 1 + max((own.number for own in classes), default=0)  # the learner goes by the numbers of classes
        rows, offsets = torch.zeros(size, weight.shape[1]), torch.zeros(size)
        for own in classes:
            if own.learnt in labels:
                place = labels.index(own.learnt)
                rows[own.number], offsets[own.number] = weight[place], bias[place]
        return Prior(rows, offsets)

    # what is there

    def number(self, cell: Cell) -> int | None:
        """The number of a cell in the pool; None if it has no data."""
        if cell.raster not in self.project.names:
            return None
        return self.pool.number(self.project.names.index(cell.raster), cell.row, cell.col)

    def cell(self, number: int) -> Cell:
        """A cell of the pool."""
        raster, row, col = self.pool.cells[number].tolist()
        return Cell(self.project.names[raster], row, col)

    def names(self) -> list[str]:
        """Names of the classes by their number; those that are gone are there too."""
        known = {own.number: own.name for own in self.project.about.classes}
        return [known.get(number, "") for number in range(1 + max(known, default=0))]

    # what changes

    def refresh(self, classes: bool = False) -> None:
        """Take in what was written, by this process or another.

        Args:
            classes: Whether classes have changed.
        """
        with self._changed:
            version = self.project.version()
            if version == self._seen and not classes:
                return
            if classes or version[1:] != self._seen[1:]:
                self.project.reload()
            touched = self.project.store.touched(self._seen[0])
            found = self.project.store.labels(touched)
            for cell in touched:
                for own in (self.said, self.agreed, self.conflicts):
                    own.pop(cell, None)
                if labels := found.get(cell):
                    self._take(cell, labels)
            self._seen = version
            self.revision += 1
            self.wanted = self.revision
            self.refitting = True
            self._changed.notify_all()

    def _take(self, cell: Cell, labels: list[Label]) -> None:
        if cell.raster not in self.project.names:  # another process has added it
            return
        self.said[cell] = labels
        number = decided(labels)
        if number is None:
            self.conflicts[cell] = labels
        else:
            self.agreed[cell] = number

    def wait_fitted(self, seconds: float = 30.0) -> Fitted:
        """The map that follows from all labels, if it comes in time, else the last one."""
        with self._changed:
            self._changed.wait_for(lambda: not self.refitting or self._closed, seconds)
            return self.fitted

    def touch(self) -> None:
        """Let pages see that something else has changed."""
        with self._changed:
            self.revision += 1

    # the threads

    def _refit(self) -> None:
        self.pool.warm()  # before the first label comes
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self.wanted != self._done)
                if self._closed:
                    return
                wanted = self.wanted
                labels = self._taught()
            self._fit(labels, wanted)
            self._done = wanted

    def _taught(self) -> dict[int, int]:
        """The classes of cells of the pool; labels of a class that the project does not know teach nothing."""
        known = {own.number for own in self.project.about.classes}
        agreed = {cell: own for cell, own in self.agreed.items() if own in known}
        return {n: own for cell, own in agreed.items() if (n := self.number(cell)) is not None}

    def _fit(self, labels: dict[int, int], wanted: int) -> None:
        problem, learned, measured = "", None, None
        try:
            learned = self.learner.fit(labels, self.prior())
            measured = self._measure(learned)
        except MgcapError as error:
            problem = str(error)
        except Exception as error:  # the page says so, and labels are safe
            log.exception("a refit failed", exc_info=error)
            problem = "the map could not be refitted; labels are saved all the same"
        with self._changed:
            self.revision += 1
            self.refitting = self.wanted != wanted
            self.problem = problem
            self.fitted = Fitted(wanted, labels, learned, measured)
            self._changed.notify_all()

    def _first(self, hard: bool, labels: dict[int, int]) -> Estimate | None:
        """How right the first labels made the map, by all of them or those that were not suggested."""
        learned = self._beside.fit(labels, self.prior())
        found = self._measure(learned)
        if hard:
            return None if learned is None else learned.estimate
        return None if found is None or found.suggested else found.estimate

    def _measure(self, learned: Learned | None) -> Measured | None:
        if learned is None or learned.estimate is None:
            return None
        hard = {self.number(own) for own in self.project.store.suggested()}
        known = np.isfinite(learned.held_out).all(1)
        own = known & np.array([int(cell) not in hard for cell in learned.cells], bool)
        if own.sum() < LEAST_LABELS or own.all():
            return Measured(learned.estimate, len(learned.cells), bool(hard & set(learned.cells.tolist())))
        right = learned.held_out[own].argmax(1) == learned.targets[own]
        blocks = block_numbers(self.pool.places[learned.cells[own]], self.learner.block)
        return Measured(blocked_share(right, blocks), int(own.sum()), False)

    def _draw(self) -> None:
        """Work out the learning curve whenever nobody labels for a moment."""
        drawn: Fitted | None = None
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or (self.fitted is not drawn and not self.refitting))  # noqa: B023
                seen = self.fitted
                self._changed.wait_for(lambda: self._closed or self.refitting or self.fitted is not seen, PAUSE)  # noqa: B023
                if self._closed:
                    return
                if self.refitting or self.fitted is not seen:
                    continue
            curve = self._points(seen)
            with self._changed:
                if curve is not None and self.fitted is seen:
                    self.fitted = replace(seen, curve=curve)
                    self.revision += 1
                drawn = self.fitted if self.fitted.curve is not None else drawn

    def _points(self, fitted: Fitted) -> Sequence[Point] | None:
        if fitted.learned is None:
            return ()
        try:
            order = [(n, own) for cell, own in self.project.store.order() if (n := self.number(cell)) is not None]
            measured = fitted.measured  # all points of a curve are measured in the same way
            curve = self._curves[measured is not None and measured.suggested]
            last = None if measured is None else measured.estimate
            return curve.points(order, last, lambda: self.refitting or self._closed)
        except Exception as error:  # a page without a curve is still of use
            log.exception("the learning curve failed", exc_info=error)
            return ()

    def shares(self) -> dict[int, float]:
        """Of the map, by class."""
        learned = self.fitted.learned
        if learned is None or not len(self.pool):
            return {}
        numbers, counts = np.unique(learned.classes_of_cells, return_counts=True)
        return {int(n): float(c) / len(self.pool) for n, c in zip(numbers, counts, strict=True)}
