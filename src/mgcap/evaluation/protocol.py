"""The paper's protocol: the same configuration on several seeded splits, one pass over the images for all of them.

Everything that is fitted (PCA, head, its regularisation, temperature) sees the training images of its own run alone.
The int8 calibration serves all runs, so it looks at drawn scenes and at none of the images. Each run is a file,
written when it is done: a killed study resumes where it stopped.
"""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from mgcap.config import MGCAPConfig
from mgcap.data.folders import SceneFolder
from mgcap.data.splits import Split, write_split
from mgcap.data.synthetic import calibration_scenes
from mgcap.errors import DataError, ImageError
from mgcap.evaluation.metrics import score
from mgcap.evaluation.resumed import check_fingerprint, data_fingerprints, read_run
from mgcap.evaluation.summary import Run, mistakes, summarise
from mgcap.inference.calibration import calibration_views, fit_reductions, pca_images
from mgcap.inference.descriptors import cached_descriptors
from mgcap.inference.engines import Engine
from mgcap.inference.extraction import Extractor
from mgcap.inference.fingerprints import rule_fingerprints
from mgcap.inference.forward import Variant
from mgcap.inference.preparation import build_model, open_cache, prepare_engine, universal_engine
from mgcap.inference.universal import universal_for
from mgcap.model import MGCAP
from mgcap.persistence.files import atomic_path, write_json
from mgcap.reduction import Reduction
from mgcap.training.setup import Setup
from mgcap.training.softmax import HeadSolver
from mgcap.training.temperature import fit_temperature


def network_config(configs: Sequence[MGCAPConfig]) -> MGCAPConfig:
    """The configuration of one pass that serves all of these: every granularity, the most rotations."""
    first = configs[0]
    rotations = max(c.rotations for c in configs)
    granularities = tuple(dict.fromkeys(g for c in configs for g in c.granularities))
    shared = first.replace(
        rotations=rotations, granularities=granularities, activated=all(c.activated for c in configs)
    )
    fields = ("backbone", "layer", "size", "frame", "corners", "field_of_view", "reduction", "channels")
    for c in configs:
        if rotations % c.rotations or any(getattr(c, name) != getattr(first, name) for name in fields):
            raise DataError("these configurations cannot share one pass over the views")
    return shared


class Study:
    """Runs of one or several configurations on the same splits of a folder.

    Args:
        setup: How models are trained.
        folder: The images.
        splits: One for each run.
        settings: Configurations by name; they must agree in network and frame.
        out: Where runs and tables go; a study that was begun there is resumed.

    Raises:
        DataError: If ``out`` holds another study.
    """

    def __init__(
        self,
        setup: Setup,
        folder: SceneFolder,
        splits: Sequence[Split],
        settings: dict[str, MGCAPConfig],
        out: Path,
    ) -> None:
        self.setup, self.folder, self.splits, self.out = setup, folder, list(splits), out
        self.runtime, self.progress, self.settings = setup.runtime, setup.runtime.progress, settings
        self.network = network_config(list(self.settings.values()))
        self.skipped: list[tuple[int, ImageError]] = []
        self.fingerprint: dict[str, Any] = {
            "configuration": {name: config.model_dump(mode="json") for name, config in self.settings.items()},
            "weights": str(setup.weights),
            "engine": setup.runtime.engine,
            "regularisation": setup.regularisation,
            "descriptor": setup.descriptor,
            **data_fingerprints(folder, splits),
        }
        if setup.finetune is not None:
            self.fingerprint["finetune"] = setup.finetune.model_dump(mode="json")
        if rules := {name: own for name, config in settings.items() if (own := rule_fingerprints(config))}:
            self.fingerprint["rules"] = rules
        check_fingerprint(out / "study.json", self.fingerprint, "study")

    def run(self) -> dict[str, dict[str, Any]]:
        """Do the runs that are missing and return the summary of each setting."""
        begin = time.perf_counter()
        runs = {
            (name, number): run
            for name in self.settings
            for number in range(len(self.splits))
            if (run := self._read(name, number))
        }
        if len(runs) < len(self.splits) * len(self.settings):
            self.out.mkdir(parents=True, exist_ok=True)
            write_json(self.out / "study.json", {"fingerprint": self.fingerprint})
            for number, split in enumerate(self.splits):
                write_split(self.out / "splits" / f"run-{number:02d}.csv", self.folder, split)
            self._compute(runs)
        summaries = {}
        for name, config in self.settings.items():
            summary = summarise([runs[name, number] for number in range(len(self.splits))], self.folder.classes)
            summary["configuration"] = config.model_dump(mode="json")
            summary["seconds"] = time.perf_counter() - begin
            summaries[name] = summary
        write_json(self.out / "summary.json", summaries if len(summaries) > 1 else summaries[name])
        return summaries

    def wrong(self, name: str) -> list[dict[str, Any]]:
        """The mistakes of all runs of a setting."""
        runs = (self._read(name, number) for number in range(len(self.splits)))
        return [item for run in runs if run for item in run["wrong"]]

    def _file(self, name: str, number: int) -> Path:
        return self.out / "runs" / f"{name}-{number:02d}.json"

    def _read(self, name: str, number: int) -> Run | None:
        return read_run(self._file(name, number))

    def _compute(self, runs: dict[tuple[str, int], Run]) -> None:
        items = self.folder.paths
        model, backbone = build_model(self.network, self.setup.weights, self.runtime)
        universal = universal_for(model) if self.setup.descriptor == "universal" else None
        if universal is not None:
            universal.install(model)
            engine = universal_engine(universal, model, self.runtime)
        else:
            engine = prepare_engine(model, self.runtime, lambda: calibration_views(model, calibration_scenes()))
        self.progress.say(f"the engine is {engine.name}")
        variants, number_of = self._variants(model, engine, universal is not None)
        extractor = Extractor(model, engine, open_cache(self.runtime), variants)
        with self.progress("Extracting features", len(items)) as step:
            keys = extractor.fill(items, lambda i, error: self.skipped.append((i, error)), step)
        kept = [i for i, key in enumerate(keys) if key]
        place = {index: row for row, index in enumerate(kept)}
        targets = [self.folder.targets[i] for i in kept]
        rows = [key for key in keys if key]
        with self.progress("Runs", len(self.splits) * len(self.settings)) as step:
            step(len(runs))
            for name, config in self.settings.items():
                solver: tuple[int, HeadSolver] | None = None
                for number, split in enumerate(self.splits):
                    if (name, number) in runs:
                        continue
                    begin = time.perf_counter()
                    variant = number_of[_matrix_fields(config), number]
                    if solver is None or solver[0] != variant:
                        descriptors = cached_descriptors(extractor, rows, variant, config)
                        solver = variant, HeadSolver(descriptors, targets, len(self.folder.classes))
                    run = self._one(solver[1], split, place)
                    run |= {"engine": engine.name, "weights": backbone["source"]}
                    self._finish(runs, name, number, run | {"seconds": time.perf_counter() - begin})
                    step(1)

    def _finish(self, runs: dict[tuple[str, int], Run], name: str, number: int, run: Run) -> None:
        """Keep a run that is done."""
        runs[name, number] = {**run, "run": number}
        write_json(self._file(name, number), runs[name, number])
        self._table(runs)
        self.progress.say(f"{name} {number}: {run['accuracy']:.2f} %")

    def _variants(self, model: MGCAP, engine: Engine, fixed: bool) -> tuple[list[Variant], dict[tuple[str, int], int]]:
        """What the pass keeps, and the number of the variant for each kind of matrix and run."""
        counts: dict[str, set[int]] = {}
        configs: dict[str, MGCAPConfig] = {}
        for config in self.settings.values():
            fields = _matrix_fields(config)
            counts.setdefault(fields, set()).add(config.rotations)
            configs.setdefault(fields, config)
        variants: list[Variant] = []
        number_of: dict[tuple[str, int], int] = {}
        fitted: dict[bool, list[Reduction]] = {}
        groups = [split.train for split in self.splits]
        for fields, config in configs.items():
            kept = tuple(sorted(counts[fields]))
            activates = config.activated and not self.network.activated
            fits = config.reduction == "pca" and not fixed
            if fits and activates not in fitted:
                with self.progress("Fitting PCA", pca_images(groups)) as step:
                    fitted[activates] = fit_reductions(
                        model, engine, self.folder.paths, groups, self.runtime.seed, step, activates
                    )
            own = fitted[activates] if fits else [model.reduction]
            first = len(variants)
            variants += [Variant(config, reduction, kept) for reduction in own]
            for number in range(len(self.splits)):
                number_of[fields, number] = first + (number if len(own) > 1 else 0)
        return variants, number_of

    def _one(self, solver: HeadSolver, split: Split, place: dict[int, int]) -> Run:
        train = [i for i in split.train if i in place]
        test = [i for i in split.test if i in place]
        if not test:
            raise DataError("none of the test images could be read")
        lost = set(range(len(self.folder.classes))) - {self.folder.targets[i] for i in train}
        if lost:
            raise DataError(f"no training image of class '{self.folder.classes[min(lost)]}' could be read")
        strengths = self.setup.strengths()
        solution = solver.solve([place[i] for i in train], strengths, seed=self.runtime.seed)
        rows = [place[i] for i in train]
        temperature = (
            fit_temperature(solution.cv_logits, solver.targets[rows]) if solution.cv_logits is not None else 1.0
        )
        logits = solver.logits(solution, [place[i] for i in test])
        targets = torch.tensor([self.folder.targets[i] for i in test])
        scores = score(logits, targets, len(self.folder.classes), temperature)
        wrong = mistakes(self.folder, test, targets, (logits.double() / temperature).softmax(1), self.folder.classes)
        best = solution.cv_accuracy.get(solution.regularisation)
        return {
            **asdict(scores),
            "train_images": len(train),
            "test_images": len(test),
            "regularisation": solution.regularisation,
            "cross_validated_accuracy": None if best is None else 100 * best,
            "wrong": wrong,
        }

    def _table(self, runs: dict[tuple[str, int], Run]) -> None:
        """One row per run as CSV."""
        fields = ["setting", "run", "train_images", "test_images", "accuracy", "macro_f1", "kappa", "ece"]
        fields += ["ece_calibrated", "temperature", "loss", "regularisation", "cross_validated_accuracy", "seconds"]
        with atomic_path(self.out / "runs.csv") as temporary, temporary.open("w", newline="") as file:
            writer = csv.DictWriter(file, fields, extrasaction="ignore")
            writer.writeheader()
            for name, number in sorted(runs, key=lambda key: (list(self.settings).index(key[0]), key[1])):
                row = runs[name, number] | {"setting": name}
                writer.writerow({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items()})


def _matrix_fields(config: MGCAPConfig) -> str:
    """What pooled matrices depend on besides views and network, as text."""
    names = {"activated", "feature_norm", "embedding", "unbiased", "ridge", "rotation_pooling"}
    return json.dumps(config.model_dump(mode="json", include=names), sort_keys=True)
