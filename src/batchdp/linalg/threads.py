"""One thread of linear algebra for loops of small products, and such loops side by side.

NumPy and SciPy each bring an OpenBLAS with threads of its own. Where a loop calls both in turn, the idle pool spins
while the other works, and two threads take up to twenty times as long as one.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])
S = TypeVar("S")
T = TypeVar("T")

ENOUGH_ENTRIES = 200_000
"""Of a matrix, for two threads to be faster than one."""

_lock = threading.Lock()
_inside = 0
_limit: Any = None


def one_thread(function: F) -> F:
    """The function, run with BLAS limited to one thread; the limit belongs to the process."""
    return _limited()(function)


@contextmanager
def _limited() -> Iterator[None]:
    """The first to enter sets the limit and the last one out lifts it, whatever threads they run in."""
    global _inside, _limit
    with _lock:
        if _inside == 0:
            _limit = _pools().limit(limits=1, user_api="blas")
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0:
                _limit.restore_original_limits()


@cache
def _pools() -> Any:
    """Of NumPy and SciPy, looked for once: going through all libraries takes longer than many a small search."""
    import scipy.linalg  # noqa: F401  # so that both are loaded
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def in_threads(function: Callable[[S], T], items: Iterable[S], *, entries: int) -> Iterator[T]:
    """The function of every item, in the items' order, worked out on as many threads as there are cores.

    NumPy lets go of the interpreter while it computes, which pays where the matrices have `entries` enough; threads
    with small ones wait for one another. Each result is what it would be alone; what is not yet begun is dropped when
    the caller stops listening.
    """
    items = list(items)
    workers = min(len(items), _cores() if entries >= ENOUGH_ENTRIES else 1)
    if workers <= 1:
        yield from map(function, items)
        return
    with ThreadPoolExecutor(workers) as pool:
        yield from pool.map(function, items)


def _cores() -> int:
    """That this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
