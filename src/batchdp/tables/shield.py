"""Engine errors may hold values of records, so only their type gets out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from batchdp.errors import TableError

T = TypeVar("T")
END = object()


def shielded(action: Callable[[], T], task: str) -> T:
    """What the action gives; an error in it becomes one that names its type and nothing else."""
    try:
        return action()
    except TableError:
        raise
    except Exception as error:
        failure = type(error).__name__
    # Raised out here, the error does not carry the engine's one as its context.
    raise TableError(f"{task} failed in the engine with {failure}; its message is withheld, as it may show records")


def shielded_all(items: Iterator[T], task: str) -> Iterator[T]:
    """The same for every item of an iterator."""
    while True:
        item = shielded(lambda: next(items, END), task)
        if item is END:
            return
        yield item  # type: ignore[misc]
