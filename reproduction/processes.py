"""Jobs in processes of their own, a few at a time, each killed when its time is up.

A strategy may sit in one call of the linear algebra library for minutes, so nothing less than a process can be stopped.
The limit is one of computing time where the system has such limits, so that a busy machine gives the same results.
"""

from __future__ import annotations

import multiprocessing as mp
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import ceil, inf, nan
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Generic, TypeVar

try:
    import resource
except ImportError:  # not on Windows
    resource = None  # type: ignore[assignment]

ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""For the jobs: a process with threads of the linear algebra library cannot be forked safely."""

J = TypeVar("J")
R = TypeVar("R")


@dataclass(frozen=True)
class Ended(Generic[J, R]):
    """How a job ended: what came of it, or why nothing did."""

    job: J
    result: R | None
    failure: str = ""
    limit: float = nan
    """The seconds of computing that were not enough, if that is why."""


@dataclass
class _Running(Generic[J]):
    job: J
    process: BaseProcess
    results: Connection
    leash: Connection
    """Held by this process alone: when it is gone, the job's process ends itself."""
    deadline: float


def run_jobs(jobs: Iterable[J], work: Callable[[J], R], *, workers: int, seconds: float) -> Iterator[Ended[J, R]]:
    """Each job's end, in the order in which they end; jobs are taken from the iterable only when there is room."""
    context: Any = mp.get_context("forkserver" if "forkserver" in mp.get_all_start_methods() else "spawn")
    if context.get_start_method() == "forkserver":
        context.set_forkserver_preload([work.__module__])
    queue, running = iter(jobs), list[_Running[J]]()
    before = {name: os.environ.get(name) for name in ONE_THREAD}
    os.environ.update(ONE_THREAD)
    try:
        while True:
            while len(running) < workers and (job := next(queue, None)) is not None:
                running.append(_start(context, job, work, seconds))
            if not running:
                return
            left = min(one.deadline for one in running) - time.monotonic()
            ready = wait([one.results for one in running], timeout=None if left == inf else max(0.0, left))
            for one in list(running):
                in_time = one.results in ready
                if in_time or time.monotonic() > one.deadline:
                    running.remove(one)
                    yield _finish(one, in_time=in_time, seconds=seconds)
    finally:
        for one in running:
            _end(one)
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def _start(context: Any, job: J, work: Callable[[J], R], seconds: float) -> _Running[J]:
    results, theirs = context.Pipe(duplex=False)
    leashed, leash = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(job, work, seconds, theirs, leashed), daemon=True)
    process.start()
    theirs.close()
    leashed.close()
    return _Running(job, process, results, leash, time.monotonic() + seconds if resource is None else inf)


def _finish(one: _Running[J], *, in_time: bool, seconds: float) -> Ended[J, Any]:
    result = None
    failure, limit = f"skipped: took more than {seconds:g} s", seconds
    if in_time:
        try:
            (result, failure), limit = one.results.recv(), nan
        except EOFError:
            one.process.join()
            if one.process.exitcode not in _OUT_OF_TIME:
                code, limit = one.process.exitcode, nan
                failure = f"failed: its process ended with code {code}; was there enough memory?"
    _end(one)
    return Ended(one.job, result, failure, limit)


_OUT_OF_TIME = {-getattr(signal, "SIGXCPU", 0)}


def _end(one: _Running[J]) -> None:
    one.process.kill()
    one.process.join()
    one.results.close()
    one.leash.close()


def _work(job: J, work: Callable[[J], R], seconds: float, results: Connection, leashed: Connection) -> None:
    """In the job's process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to every process of the terminal; the first one decides
    if resource is not None:
        used = time.process_time()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (ceil(used + seconds), ceil(used + seconds) + 5))
    threading.Thread(target=_end_with_parent, args=(leashed,), daemon=True).start()
    try:
        results.send((work(job), ""))
    except Exception as error:
        results.send((None, f"failed: {type(error).__name__}: {error}"))


def _end_with_parent(leashed: Connection) -> None:
    try:
        leashed.recv()
    except (EOFError, OSError):
        os._exit(1)
