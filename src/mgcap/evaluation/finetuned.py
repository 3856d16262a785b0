"""The same protocol with the whole network fine-tuned in every run."""

from __future__ import annotations

import time
from pathlib import Path

from mgcap.classifier import SceneClassifier
from mgcap.config import MGCAPConfig
from mgcap.data.splits import Split
from mgcap.evaluation.protocol import Study
from mgcap.evaluation.summary import Run, tested
from mgcap.training.checkpoint import FILE


class FinetunedStudy(Study):
    """Like :class:`Study`, but each run trains its own network, from a checkpoint if it was killed, and keeps it."""

    def _compute(self, runs: dict[tuple[str, int], Run]) -> None:
        for name, config in self.settings.items():
            for number, split in enumerate(self.splits):
                if (name, number) in runs:
                    continue
                self.progress.say(f"{name}, run {number + 1} of {len(self.splits)}")
                begin = time.perf_counter()
                folder = self.out / "training" / f"{name}-{number:02d}"
                run = self._finetuned(config, number, split, folder)
                self._finish(runs, name, number, run | {"seconds": time.perf_counter() - begin})
                (folder / FILE).unlink(missing_ok=True)

    def _finetuned(self, config: MGCAPConfig, number: int, split: Split, folder: Path) -> Run:
        c, r = self.setup, self.runtime
        classifier = SceneClassifier(
            config.preset,
            weights=c.weights,
            descriptor=c.descriptor,
            engine=r.engine,
            device=r.device,
            regularisation=c.regularisation,
            seed=r.seed + number,
            cache=r.cache,
            finetune=c.finetune,
            progress=r.progress,
            **config.model_dump(include=config.model_fields_set - {"preset", "num_classes"}),
        )
        training, testing = self.folder.subset(split.train), self.folder.subset(split.test)
        classifier.fit(training.paths, training.labels, folder=folder, resume=True)
        self.skipped += [(split.train[i], error) for i, error in classifier.skipped_]
        classifier.save(self.out / "models" / f"{folder.name}.mgcap")
        return tested(classifier, testing, lambda i, error: self.skipped.append((split.test[i], error)))
