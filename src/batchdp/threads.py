"""One thread of linear algebra for loops of small products.

NumPy and SciPy each bring an OpenBLAS with threads of its own. Where a loop calls both in turn, the idle pool spins
while the other works, and two threads take up to twenty times as long as one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def one_thread(function: Callable[P, T]) -> Callable[P, T]:
    """The function, run with BLAS limited to one thread and the limit lifted afterwards."""

    @wraps(function)
    def limited(*args: P.args, **kwargs: P.kwargs) -> T:
        from threadpoolctl import threadpool_limits

        with threadpool_limits(limits=1, user_api="blas"):
            return function(*args, **kwargs)

    return limited
