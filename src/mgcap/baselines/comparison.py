"""Several methods on the same splits: one process for each, one file for each run, one table for all.

A method that raises, or whose process dies, leaves its error and the others continue. A comparison that was killed
resumes with the runs that are missing.
"""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from mgcap.baselines import find_methods
from mgcap.baselines.method import About, Maker, Tools
from mgcap.baselines.timm_models import PREFIX, timm_method
from mgcap.baselines.turns import POLL_SECONDS, Turn, give_turns
from mgcap.bench.speed import peak_memory_mib
from mgcap.data.folders import SceneFolder
from mgcap.data.splits import Split, write_split
from mgcap.errors import DataError, MgcapError, did_you_mean
from mgcap.evaluation import add_significance, check_fingerprint, data_fingerprints, read_run
from mgcap.inference.engines.probe import available_cores
from mgcap.inference.preparation import open_cache
from mgcap.persistence.cache import FeatureCache
from mgcap.persistence.files import write_json, write_rows
from mgcap.runtime import Runtime, silent

#: Images whose labelling is timed.
TIMED = 8

Row = dict[str, Any]
Methods = dict[str, tuple[About, Maker]]


@dataclass(frozen=True)
class Job:
    """What a process needs to know to run one method."""

    name: str
    files: tuple[Path, ...]
    folder: SceneFolder
    splits: tuple[Split, ...]
    out: Path
    runtime: Runtime
    threads: int

    def file(self, run: int) -> Path:
        """Where a run is kept."""
        return self.out / "runs" / f"{self.name}-{run:02d}.json"

    def runs(self) -> dict[int, Row]:
        """The runs that are done, by their numbers."""
        found = {number: read_run(self.file(number)) for number in range(len(self.splits))}
        return {number: run for number, run in found.items() if run}

    def table(self) -> list[Row]:
        """The runs that are done as rows: which one, and what was measured."""
        return [{"method": self.name, "split": n, **run, "wrong": len(run["wrong"])} for n, run in self.runs().items()]


class Comparison:
    """Methods on the same splits of a folder.

    Args:
        folder: The images.
        splits: One for each run.
        names: The methods.
        out: Where runs and tables go; a comparison that was begun there is resumed.
        files: Python files with methods of the user's own.
        jobs: Methods at the same time; as many as there are cores by default.
        runtime: Engine for frozen networks, device of all networks, seed, cache and progress.

    Raises:
        DataError: If a method is unknown, or ``out`` holds another comparison.
    """

    def __init__(
        self,
        folder: SceneFolder,
        splits: Sequence[Split],
        names: Sequence[str],
        out: Path,
        *,
        files: Sequence[Path] = (),
        jobs: int | None = None,
        runtime: Runtime | None = None,
    ) -> None:
        runtime = runtime or Runtime()
        runtime.torch_device()  # or say that there is none, before the work
        self.about = {name: about for name, (about, _) in choose(find_methods(files), names).items()}
        self.folder, self.splits, self.out, self.progress = folder, tuple(splits), out, runtime.progress
        cores = available_cores()
        self.parallel = max(1, min(jobs or cores, len(self.about)))
        threads = max(1, cores // self.parallel)
        quiet = replace(runtime, progress=silent)  # processes say nothing
        self.jobs = [Job(name, tuple(files), folder, self.splits, out, quiet, threads) for name in self.about]
        self.fingerprint = {**data_fingerprints(folder, splits), "seed": runtime.seed, "engine": runtime.engine}
        check_fingerprint(out / "comparison.json", self.fingerprint, "comparison")

    def run(self) -> list[Row]:
        """Do what is missing and return a row for each method, the best first."""
        write_json(self.out / "comparison.json", {"fingerprint": self.fingerprint})
        for number, split in enumerate(self.splits):
            write_split(self.out / "splits" / f"run-{number:02d}.csv", self.folder, split)
        with self.progress("Methods", len(self.jobs)) as step:
            for job, error in self._processes():
                accuracies = ", ".join(f"{run['accuracy']:.2f}" for run in job.runs().values())
                self.progress.say(f"{job.name}: {error or accuracies}")
                step(1)
        write_rows(self.out / "runs.csv", [row for job in self.jobs for row in job.table()])
        rows = [self._row(job) for job in self.jobs]
        rows.sort(key=lambda row: -(row["mean"] if row["mean"] is not None else -1.0))
        add_significance(rows, len(self.splits[0].test) / len(self.splits[0].train))
        return rows

    def _processes(self) -> Iterator[tuple[Job, str]]:
        """Run the jobs, some at a time; each with its error when it has ended."""
        waiting = []
        for job in self.jobs:
            if len(job.runs()) == len(self.splits):
                yield job, ""
            else:
                waiting.append(job)
        context = multiprocessing.get_context("spawn")
        running: dict[str, tuple[Any, Turn]] = {}
        by_name = {job.name: job for job in self.jobs}
        try:
            while waiting or running:
                while waiting and len(running) < self.parallel:
                    job = waiting.pop(0)
                    turn = Turn.of(context)
                    process = context.Process(target=run_method, args=(job, turn))
                    process.start()
                    running[job.name] = process, turn
                time.sleep(POLL_SECONDS)
                give_turns(running)
                for name, (process, _) in list(running.items()):
                    if process.is_alive():
                        continue
                    process.join()
                    job = by_name[name]
                    del running[name]
                    error = read_error(job)
                    if process.exitcode and not error:
                        error = f"the process ended with {_ending(process.exitcode)}"
                        _write_error(job, error)
                    yield job, error
        finally:
            for process, _ in running.values():
                process.kill()

    def _row(self, job: Job) -> Row:
        about: About = self.about[job.name]
        runs = list(job.runs().values())
        complete = len(runs) == len(self.splits)
        accuracies = [run["accuracy"] for run in runs]
        row: Row = {
            "name": about.name,
            "title": about.title,
            "family": about.family,
            "mean": float(np.mean(accuracies)) if complete else None,
            "std": float(np.std(accuracies, ddof=1)) if complete and len(runs) > 1 else None,
            "runs": accuracies,
            "error": None if complete else read_error(job) or "not finished",
            "published": about.published,
        }
        for column in ("fit_seconds", "predict_ms", "parameters", "memory_mib"):
            row[column] = float(np.mean([run[column] for run in runs])) if complete else None
        return row


def choose(methods: Methods, names: Sequence[str]) -> Methods:
    """The methods that are meant: names (also ``timm:NAME``), families, or ``all``.

    Raises:
        DataError: If there is no such method.
    """
    chosen: Methods = {}
    for name in names or ["all"]:
        found = {key: entry for key, entry in methods.items() if name in ("all", key, entry[0].family)}
        if name.startswith(PREFIX):
            found = {name: timm_method(name)}
        if not found:
            known = ["all", *methods, *dict.fromkeys(about.family for about, _ in methods.values())]
            raise DataError(f"there is no method '{name}'{did_you_mean(name, known)}; there are {', '.join(known)}")
        chosen |= {key: entry for key, entry in found.items() if key not in chosen}
    return chosen


def _error_file(job: Job) -> Path:
    return job.out / "runs" / f"{job.name}.error"


def read_error(job: Job) -> str:
    """What went wrong with a method, or nothing."""
    try:
        return _error_file(job).read_text().strip()
    except OSError:
        return ""


def _write_error(job: Job, error: str) -> None:
    _error_file(job).parent.mkdir(parents=True, exist_ok=True)
    _error_file(job).write_text(error + "\n")


def _ending(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def run_method(job: Job, turn: Turn) -> None:
    """Do the missing runs of a method, in a process of its own."""
    import torch

    torch.set_num_threads(job.threads)
    _error_file(job).unlink(missing_ok=True)
    try:
        _, make = choose(find_methods(job.files), [job.name])[job.name]
        for number, split in enumerate(job.splits):
            if read_run(job.file(number)) is None:
                tools = Tools(
                    open_cache(job.runtime), job.runtime.seed + number, job.runtime.engine, job.runtime.device
                )
                write_json(job.file(number), one_run(make(tools), tools, job, split, turn.alone()))
    except Exception as error:
        known = isinstance(error, MgcapError | ValueError | ImportError)
        _write_error(job, str(error) if known else f"{type(error).__name__}: {error}")
        sys.exit(1)


def one_run(method: Any, tools: Tools, job: Job, split: Split, alone: AbstractContextManager[None]) -> Row:
    """Fit a method and test it; its speed is measured with all cores, and with nobody else on them."""
    folder = job.folder
    train, test = folder.subset(split.train), folder.subset(split.test)
    begin = time.perf_counter()
    method.fit(list(train.paths), [str(label) for label in train.labels])
    fitted = time.perf_counter() - begin
    answers = method.predict(list(test.paths))
    right = np.asarray(answers) == np.asarray(test.labels)
    some = list(test.paths[:TIMED])
    tools.cache = FeatureCache(memory=True)  # the time of a new image, not of a cached one
    with alone, _threads(available_cores()):
        begin = time.perf_counter()
        method.predict(some)
        seconds = (time.perf_counter() - begin) / len(some)
    return {
        "accuracy": 100 * float(right.mean()),
        "wrong": [folder.relative(path) for path, good in zip(test.paths, right, strict=True) if not good],
        "fit_seconds": fitted,
        "predict_ms": 1000 * seconds,
        "parameters": method.parameters(),
        "memory_mib": peak_memory_mib(),
        "train_images": len(train),
        "test_images": len(test),
        "seed": tools.seed,
    }


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """Let torch use this number of threads within the block."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def as_listed(about: About) -> dict[str, Any]:
    """What ``mgcap compare --list`` says of a method, with what is missing here."""
    return {**asdict(about), "missing": missing_parts(about)}


def missing_parts(about: About) -> list[str]:
    """Packages of a method that are not installed; weights are fetched when they are needed."""
    import importlib.util

    packages = [need for need in about.needs if not need.startswith("weights:")]
    return [name for name in packages if importlib.util.find_spec(name) is None]
