"""One thread computes, so that requests neither fight for the cores nor for memory; predictions go in batches."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import numpy as np

from mgcap.classifier import SceneClassifier
from mgcap.data.stream import check_items
from mgcap.descriptor import _raise
from mgcap.errors import ImageError
from mgcap.typing import Array

T = TypeVar("T")

#: Images that are classified together.
BATCH = 8


class Said(NamedTuple):
    """What a model says of one image."""

    probabilities: Array  #: ``[K]``
    distance: float | None  #: from what the model was trained on, if it knows


@dataclass
class _Job:
    work: Callable[[], Any] | None
    model: str = ""
    image: Array | None = None
    done: Future[Any] = field(default_factory=Future)


class Compute:
    """The computing thread.

    Args:
        models: By name.
    """

    def __init__(self, models: dict[str, SceneClassifier]) -> None:
        self.models = models
        self.jobs: queue.Queue[_Job | None] = queue.Queue()
        self.thread = threading.Thread(target=self._run, name="compute", daemon=True)
        self.thread.start()

    def close(self) -> None:
        """Finish what was asked for, and end."""
        self.jobs.put(None)
        self.thread.join()

    def waiting(self) -> int:
        """How many jobs wait."""
        return self.jobs.qsize()

    def classify(self, model: str, image: Array) -> Future[Said]:
        """What the model of that name says of one image ``[H, W, 3]``."""
        job = _Job(None, model, image)
        self.jobs.put(job)
        return job.done

    def run(self, work: Callable[[], T]) -> Future[T]:
        """Run a function on the computing thread."""
        job = _Job(work)
        self.jobs.put(job)
        return job.done

    def _run(self) -> None:
        kept: _Job | None = None
        while True:
            job = kept or self.jobs.get()
            kept = None
            if job is None:
                return
            if job.work is not None:
                self._one(job)
                continue
            batch = [job]
            while len(batch) < BATCH:
                try:
                    following = self.jobs.get_nowait()
                except queue.Empty:
                    break
                if following is None or following.work is not None or following.model != job.model:
                    if following is None:
                        self.jobs.put(None)
                    kept = following
                    break
                batch.append(following)
            self._predict(batch)

    def _one(self, job: _Job) -> None:
        if not job.done.set_running_or_notify_cancel():
            return
        try:
            assert job.work is not None
            job.done.set_result(job.work())
        except BaseException as error:  # the request that waits for it raises it
            job.done.set_exception(error)

    def _predict(self, batch: Sequence[_Job]) -> None:
        jobs = [job for job in batch if job.done.set_running_or_notify_cancel()]
        if not jobs:
            return
        try:
            answers = self._answers(jobs)
        except Exception:  # one of them fails; which one shows when each is by itself
            for job in jobs:
                try:
                    job.done.set_result(self._answers([job])[0])
                except BaseException as error:  # the request that waits for it raises it
                    job.done.set_exception(error)
            return
        except BaseException as error:
            for job in jobs:
                job.done.set_exception(error)
            return
        for job, said in zip(jobs, answers, strict=True):
            job.done.set_result(said)

    def _answers(self, jobs: Sequence[_Job]) -> list[Said]:
        items = check_items([job.image for job in jobs])
        found = self.models[jobs[0].model].predict_readable(items, on_error=_raise, keep=False)
        if not np.isfinite(found.probabilities).all():
            raise ImageError("the model has no finite answer to the image")
        distances = [None] * len(jobs) if found.distances is None else found.distances.tolist()
        return [Said(row, distance) for row, distance in zip(found.probabilities, distances, strict=True)]


async def answer_of(future: Future[T], gone: Callable[[], Any], seconds: float) -> T:
    """Wait for a job; it is given up if the client goes or the time is over.

    Args:
        future: Of the job.
        gone: Awaited to learn whether the client has gone.
        seconds: To wait at most.
    """
    waiting = asyncio.wrap_future(future)
    try:
        async with asyncio.timeout(seconds):
            while True:
                ready, _ = await asyncio.wait({waiting}, timeout=0.5)
                if ready:
                    return waiting.result()
                if await gone():
                    raise ConnectionAbortedError
    finally:
        waiting.cancel()
