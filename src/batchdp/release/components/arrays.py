"""Arrays of a file, read piece by piece and believed in nothing."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchdp.errors import ReleaseError


class Reading:
    """An array that is read from its beginning, piece by piece."""

    def __init__(self, content: NDArray[Any]) -> None:
        self._content, self._at = content, 0

    def next(self, *shape: int) -> NDArray[Any]:
        """The next entries, in this shape."""
        size = prod(shape)
        if min(shape, default=0) < 0 or self._at + size > len(self._content):
            raise ReleaseError("an array is shorter than it should be")
        self._at += size
        return self._content[self._at - size : self._at].reshape(shape)

    def check_ended(self) -> None:
        """Refuse what is left."""
        if self._at != len(self._content):
            raise ReleaseError("an array is longer than it should be")


def whole_numbers(name: str, arrays: Mapping[str, Any]) -> NDArray[np.int64]:
    """An array of them."""
    array = arrays[name]
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ReleaseError(f"{name} is not a list of whole numbers")
    return np.asarray(array, dtype=np.int64)
