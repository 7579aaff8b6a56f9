"""What the rows of tables are called: headings and titles, held once for all tables that share them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchdp.errors import WorkloadError
from batchdp.workloads.structure import KroneckerWorkload

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Key:
    """A group column: its heading, and the titles of its groups in their order."""

    heading: str
    titles: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Legend:
    """The group columns of every table of a batch.

    Args:
        keys: all group columns.
        kinds: for every kind of axis the numbers of its keys, the last varying fastest; an axis of one row that is
            not grouped by anything has none.
        axes: the kind of every axis, as `KroneckerWorkload.columns` lists them.
        asked: a fingerprint of what the tables' values stand for, which their numbers do not show.
    """

    keys: tuple[Key, ...]
    kinds: tuple[tuple[int, ...], ...]
    axes: Indices
    asked: str

    def __post_init__(self) -> None:
        self.axes.flags.writeable = False

    def numbers_of(self, batch: KroneckerWorkload, table: int) -> tuple[int, ...]:
        """The numbers of the group columns of a table, in the order of its axes."""
        own = self.axes[batch.starts[table] : batch.starts[table + 1]].tolist()
        return tuple(k for kind in own for k in self.kinds[kind])

    def keys_of(self, batch: KroneckerWorkload, table: int) -> list[Key]:
        """The group columns of a table, in the order of its axes."""
        return [self.keys[k] for k in self.numbers_of(batch, table)]

    def shape(self, batch: KroneckerWorkload, table: int) -> tuple[int, ...]:
        """How many groups every group column of a table has; their product is the number of its answers."""
        return tuple(len(key.titles) for key in self.keys_of(batch, table))

    def columns(self, batch: KroneckerWorkload, table: int) -> list[tuple[str, NDArray[Any]]]:
        """Of every group column its heading, and the title of each of the table's rows."""
        keys, shape = self.keys_of(batch, table), self.shape(batch, table)
        found = []
        for axis, key in enumerate(keys):
            titles = np.array(key.titles, dtype=object)
            inner, outer = prod(shape[axis + 1 :]), prod(shape[:axis])
            found.append((key.heading, np.tile(np.repeat(titles, inner), outer)))
        return found

    def row(self, batch: KroneckerWorkload, table: int, place: int) -> str:
        """What one of a table's rows is called: column=group, …; nothing where it has no group columns."""
        return self.called(self.numbers_of(batch, table), place)

    def called(self, keys: Sequence[int], place: int) -> str:
        """What one of the combinations of some group columns is called, the last column fastest."""
        own = [self.keys[k] for k in keys]
        at = np.unravel_index(place, [len(key.titles) for key in own]) if own else ()
        return ", ".join(f"{key.heading}={key.titles[int(i)]}" for key, i in zip(own, at, strict=True))

    def header(self) -> dict[str, Any]:
        """For files and digests, beside the array of axes."""
        keys = [[key.heading, key.titles] for key in self.keys]
        return {"keys": keys, "kinds": self.kinds, "asked": self.asked}

    @property
    def digest(self) -> str:
        """SHA-256 of all of it."""
        told = json.dumps(self.header()).encode()
        return hashlib.sha256(told + np.ascontiguousarray(self.axes, dtype="<i8").tobytes()).hexdigest()

    @classmethod
    def read(cls, content: Mapping[str, Any], axes: Indices, batch: KroneckerWorkload) -> Legend:
        """From a file, where anything can stand; refused unless it fits the batch."""
        keys = tuple(Key(_text(heading), tuple(map(_text, titles))) for heading, titles in content["keys"])
        kinds = tuple(tuple(own) for own in content["kinds"])
        used = [k for own in kinds for k in own]
        fits = (
            all(isinstance(k, int) and not isinstance(k, bool) and 0 <= k < len(keys) for k in used)
            and len(axes) == len(batch.columns)
            and bool(np.all((axes >= 0) & (axes < len(kinds))))
            and all(key.titles for key in keys)
        )
        if not fits:
            raise WorkloadError("the legend of the tables does not hang together")
        rows = np.array([prod(len(keys[k].titles) for k in own) for own in kinds], dtype=object)
        pairs = np.unique(np.stack([batch.columns, batch.chosen, axes]), axis=1).T.tolist()
        if any(batch.factors[c][f].rows != rows[kind] for c, f, kind in pairs):
            raise WorkloadError("the legend of the tables names other rows than they have")
        return cls(keys, kinds, axes, _text(content["asked"]))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise WorkloadError("the legend of the tables holds something that is no text")
    return value


def extra_titles(declared: Sequence[str], *extra: str) -> tuple[str, ...]:
    """The declared titles and some more, each in as many parentheses as it takes to be none of the declared ones."""
    found = list(declared)
    for title in extra:
        name = f"({title})"
        while name in found:
            name = f"({name})"
        found.append(name)
    return tuple(found)
