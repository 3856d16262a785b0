"""Chunks of tiles on many processes or machines, by Dask. Raster and model must have the same path everywhere."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from mgcap.errors import MgcapError
from mgcap.geo.blocks import Cells, IndexPlan
from mgcap.geo.plan import Plan
from mgcap.geo.tiles import Answers
from mgcap.geo.work import Part, Workers, compute_part, load_for
from mgcap.inference.engines.probe import available_cores

#: How often a chunk is tried again after an error; chunks of a lost worker go to the others.
RETRIES = 3
CONNECT_SECONDS = 20
#: Parts for each thread of a worker that are on their way: what is claimed, and what waits to be written, is bounded.
AHEAD = 2
#: Kinds of plans, and what their parts come to.
_KINDS: dict[str, tuple[type[Plan], type[Part]]] = {"tiles": (Plan, Answers), "cells": (IndexPlan, Cells)}


def compute_remote(kind: str, plan: dict[str, Any], number: int) -> dict[str, Any]:
    """Compute a part on a worker."""
    wanted = _KINDS[kind][0].model_validate(plan)
    return compute_part(load_for(wanted.model, wanted.model_fingerprint, wanted.engine), wanted, number)._asdict()


@contextmanager
def cluster_workers(cluster: str) -> Iterator[Workers]:
    """Workers of a cluster.

    Args:
        cluster: ``tcp://HOST:PORT`` of a scheduler, or ``local:N`` for N processes on this machine.
    """
    try:
        import dask
        from distributed import Client, LocalCluster
    except ImportError as error:
        raise MgcapError("`cluster` needs Dask: pip install 'mgcap[cluster]'") from error

    with dask.config.set({"distributed.scheduler.allowed-failures": RETRIES}):
        local = None
        kind, _, count = cluster.partition(":")
        if kind == "local":
            if not count.isdigit() or not 1 <= int(count) <= 256:
                raise MgcapError(f"`cluster=local:N` takes a number of processes from 1 to 256, not '{cluster}'")
            threads = max(1, available_cores() // int(count))
            local = LocalCluster(  # type: ignore[no-untyped-call]
                n_workers=int(count),
                threads_per_worker=1,
                dashboard_address=None,
                memory_limit=0,
                env={"MGCAP_THREADS": os.environ.get("MGCAP_THREADS", str(threads))},
            )
        elif kind not in ("tcp", "tls", "ws", "wss"):
            raise MgcapError(f"`cluster` takes local:N or a scheduler as tcp://HOST:8786, not '{cluster}'")
        try:
            try:
                client = Client(local or cluster, timeout=CONNECT_SECONDS)  # type: ignore[no-untyped-call]
            except (OSError, TimeoutError, ValueError) as error:
                raise MgcapError(f"the scheduler {cluster} does not answer: {error}") from error

            with client:
                yield partial(_compute, client)
        finally:
            if local is not None:
                local.close()


def _compute(client: Any, plan: Plan, numbers: Iterable[int]) -> Iterator[tuple[int, Part]]:
    from distributed import KilledWorker, as_completed

    values, kind = plan.model_dump(mode="json"), "cells" if isinstance(plan, IndexPlan) else "tiles"
    rest = iter(numbers)
    futures: dict[Any, int] = {}
    done: Any = as_completed()  # type: ignore[no-untyped-call]

    def submit() -> None:
        most = AHEAD * max(1, sum(client.nthreads().values()))
        for number in itertools.islice(rest, max(0, most - len(futures))):
            future = client.submit(compute_remote, kind, values, number, retries=RETRIES, pure=False)
            futures[future] = number
            done.add(future)

    submit()
    for future in done:
        try:
            part = _KINDS[kind][1](**future.result())
        except KilledWorker as error:
            raise MgcapError(f"a part of the map killed {RETRIES + 1} workers in turn: {error}") from error
        yield futures.pop(future), part
        future.release()
        submit()
