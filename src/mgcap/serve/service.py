"""What requests share: models, decoders, the computing thread, finished maps and counters."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mgcap.classifier import SceneClassifier
from mgcap.errors import MgcapError
from mgcap.persistence.shipped import find_model
from mgcap.runtime import silent
from mgcap.serve.budget import Budget
from mgcap.serve.compute import Compute
from mgcap.serve.decoders import CHILDREN, Decoders
from mgcap.serve.folders import WorkFolder
from mgcap.serve.refusals import Refusal
from mgcap.serve.settings import Settings

T = TypeVar("T")

#: Plain copies of rasters at once, which may be large: two are mapped while another is made.
RASTERS = 3


class Service:
    """What requests share: models, the computing thread, finished maps and counters."""

    def __init__(self, models: dict[str, tuple[Path, SceneClassifier]], settings: Settings) -> None:
        self.settings = settings
        self.files = {name: path for name, (path, _) in models.items()}
        self.models = {name: classifier for name, (_, classifier) in models.items()}
        self.compute = Compute(self.models)
        self.map_threads = ThreadPoolExecutor(2, "map")
        self._work_folder = WorkFolder()
        self.folder = self._work_folder.path
        self.decoders = Decoders()
        self._decoder_threads = ThreadPoolExecutor(CHILDREN, "decode")
        self.budget = Budget(int(1e6 * settings.max_megapixels))
        self.copy_thread = ThreadPoolExecutor(1, "copy")  # rasters take one decoder, so that another is left for images
        self.rasters = asyncio.Semaphore(RASTERS)
        self.maps: OrderedDict[str, Path] = OrderedDict()
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "mgcap_requests", "Requests by path and status", ["path", "status"], registry=self.registry
        )
        self.seconds = Histogram("mgcap_request_seconds", "Time to answer", ["path"], registry=self.registry)
        self.images = Counter("mgcap_images", "Images classified", ["model"], registry=self.registry)
        waiting = Gauge("mgcap_waiting_jobs", "Jobs that wait for the computing thread", registry=self.registry)
        waiting.set_function(self.compute.waiting)

    def model(self, name: str) -> str:
        """The name of a model that is there."""
        name = name or next(iter(self.models))
        if name not in self.models:
            raise Refusal(404, f"there is no model of that name; there are {', '.join(self.models)}")
        return name

    def count_bad(self) -> None:
        """Count a request that was no HTTP."""
        self.requests.labels("other", 400).inc()

    async def in_decoder_thread(self, work: Callable[..., T], *arguments: Any) -> T:
        """Wait for a decoder without holding up other requests."""
        return await asyncio.get_running_loop().run_in_executor(self._decoder_threads, work, *arguments)

    def keep_map(self, number: str, folder: Path) -> None:
        """Let a map be downloaded, and forget the oldest."""
        self.maps[number] = folder
        while len(self.maps) > self.settings.kept_maps:
            shutil.rmtree(self.maps.popitem(last=False)[1].parent, ignore_errors=True)

    def close(self) -> None:
        """Finish and clean up."""
        self.map_threads.shutdown(wait=True)
        self.compute.close()
        self.decoders.close()
        for threads in (self._decoder_threads, self.copy_thread):
            threads.shutdown(wait=False, cancel_futures=True)
        self._work_folder.close()


def load_models(names: Sequence[str | Path], **options: Any) -> dict[str, tuple[Path, SceneClassifier]]:
    """Models by the names that the service gives them: the stems of their files."""
    found: dict[str, tuple[Path, SceneClassifier]] = {}
    for name in names:
        path = find_model(name)
        if path.stem in found:
            raise MgcapError(f"two models are called '{path.stem}'; rename one of the files")
        classifier = SceneClassifier.load(path, **options)
        classifier.progress = silent
        found[path.stem] = path, classifier
    return found


class Measure:
    """ASGI middleware that counts requests and takes their time."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self.app, self.service = app, service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        start = time.perf_counter()

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                path = getattr(scope.get("route"), "path", "other")
                self.service.requests.labels(path, message["status"]).inc()
                self.service.seconds.labels(path).observe(time.perf_counter() - start)
            await send(message)

        await self.app(scope, receive, counted)
