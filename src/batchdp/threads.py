"""One thread of linear algebra for loops of small products.

NumPy and SciPy each bring an OpenBLAS with threads of its own. Where a loop calls both in turn, the idle pool spins
while the other works, and two threads take up to twenty times as long as one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_lock = threading.Lock()
_inside = 0
_limit: Any = None


def one_thread(function: Callable[P, T]) -> Callable[P, T]:
    """The function, run with BLAS limited to one thread; the limit belongs to the process.

    The first call in sets it and the last one out lifts it, whatever threads they run in.
    """

    @wraps(function)
    def limited(*args: P.args, **kwargs: P.kwargs) -> T:
        _enter()
        try:
            return function(*args, **kwargs)
        finally:
            _leave()

    return limited


def _enter() -> None:
    global _inside, _limit
    from threadpoolctl import threadpool_limits

    with _lock:
        if _inside == 0:
            _limit = threadpool_limits(limits=1, user_api="blas")
        _inside += 1


def _leave() -> None:
    global _inside
    with _lock:
        _inside -= 1
        if _inside == 0:
            _limit.restore_original_limits()
