"""A batch whose columns are split by measures: the groups of its components, and how each looks at its axes.

The queries of a table on an axis are averaged over some of its split columns and centred along the others. What is left
of a factor on one column is one more factor on that column, whether it looked at others or not; what is left on several
columns ties these together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from itertools import combinations, pairwise, product
from math import prod

import numpy as np

from batchdp.errors import StrategyError
from batchdp.linalg.matrix import Dense
from batchdp.strategies.residual.columns import (
    Column,
    ColumnView,
    averaged,
    columns_of,
    compressed,
    joint_array,
    view,
    without_rounding,
)
from batchdp.workloads.kronecker import KroneckerWorkload

Where = int | tuple[int, ...]
"""A column, or several columns that are tied."""
Kinds = tuple[tuple[int, int], ...]
"""The axes of a table, each with the number of its factor, from 1."""
TableWeights = dict[Kinds, float]
"""Tables without their repetitions, each with its weight."""
Left = tuple[tuple[Where, int], ...]
"""What is left of a table in a group: where, and the number of the factor there."""
GroupTerms = dict[Left, float]
LOST = (
    "the tables' weights or factors are of so different sizes that some queries would be lost in rounding; "
    "give weights closer to one another, or rescale the factors"
)


@dataclass(frozen=True, eq=False)
class JointView:
    """How a group looks at columns that are tied: what is left of every factor on them, by its number."""

    rows: Mapping[int, Dense]
    """Query × combination of classes, the last column fastest."""

    def token(self, kind: int) -> bytes:
        """The same for factors that are alike."""
        return blake2b(self.rows[kind].tobytes(), digest_size=16).digest()

    def gram(self, kind: int) -> Dense:
        """Of a factor, as one row of numbers."""
        return np.asarray(self.rows[kind].T @ self.rows[kind]).reshape(-1)


class Batch:
    """What is known of a batch before any search: its columns, its joint factors, its tables without repetitions."""

    def __init__(self, workload: KroneckerWorkload) -> None:
        self.workload = workload
        self.columns: tuple[Column, ...] = columns_of(workload)
        self.tables: dict[Kinds, list[int]] = {}
        starts, columns, chosen = workload.starts.tolist(), workload.columns.tolist(), workload.chosen.tolist()
        for t, (start, end) in enumerate(pairwise(starts)):
            kinds = tuple((columns[at], chosen[at] + 1) for at in range(start, end))
            self.tables.setdefault(kinds, []).append(t)
        self._views: dict[tuple[int, bytes], ColumnView] = {}
        self._twins: list[list[int]] | None = None
        self.joint: list[tuple[tuple[int, ...], Dense, Dense]] = []
        """Of every joint factor its columns, its array over distinct values, and the sizes of its queries."""
        self.numbers: dict[tuple[int, int], int] = {}
        """The numbers of joint factors, by axis and factor."""
        self.behind: dict[int, list[int]] = {}
        """For every tied column the joint factors that look at it, which are behind its own in their order."""
        for axis in range(len(workload.sizes), len(workload.factors)):
            looked = workload.looked_at(axis)
            for kind, factor in enumerate(workload.factors[axis], 1):
                array = joint_array(factor, looked, self.columns)
                flat = compressed(array.reshape(len(array), -1))
                self.numbers[axis, kind] = len(self.joint)
                for c in looked:
                    self.behind.setdefault(c, []).append(len(self.joint))
                self.joint.append((looked, flat.reshape(-1, *array.shape[1:]), np.abs(flat).max(axis=1)))

    def terms(self, weights: Dense) -> TableWeights:
        """The distinct tables, with weights of one per table."""
        return {kinds: float(weights[own].sum()) for kinds, own in self.tables.items()}

    def looked(self, kinds: Kinds) -> set[int]:
        """The columns of a table."""
        return {c for axis, _ in kinds for c in self.workload.looked_at(axis)}

    def uniform(self, i: int) -> Dense:
        """The measure that has every value that is told apart alike, by orbit."""
        counts = self.columns[i].counts
        return np.asarray(counts / counts.sum())

    def view(self, i: int, measure: Dense | None) -> ColumnView:
        """A column as a group sees it, made once."""
        key = i, b"" if measure is None else measure.tobytes()
        if key not in self._views:
            self._views[key] = view(self.columns[i], measure)
        return self._views[key]

    def wide(self) -> list[int]:
        """Columns of more than one orbit, those with the most first."""
        return sorted((i for i, c in enumerate(self.columns) if c.orbits > 1), key=lambda i: -self.columns[i].orbits)

    @property
    def twins(self) -> list[list[int]]:
        """Columns with the same factors: they get the same measure, which is sought once."""
        if self._twins is None:
            found: dict[tuple[bytes, ...], list[int]] = {}
            for i, own in enumerate(self.columns):
                tied = [_placed(self.joint[number], i) for number in self.behind.get(i, ())]
                key = (own.spread.tobytes(), own.counts.tobytes(), *(F.tobytes() for F in own.rows), *sorted(tied))
                found.setdefault(key, []).append(i)
            self._twins = list(found.values())
        return self._twins


def _placed(joint: tuple[tuple[int, ...], Dense, Dense], column: int) -> bytes:
    """A joint factor as one of its columns sees it."""
    looked, array, _ = joint
    return bytes([looked.index(column)]) + blake2b(array.tobytes(), digest_size=16).digest()


class Split:
    """A batch with a measure for every column that is split."""

    def __init__(
        self, batch: Batch, measures: Mapping[int, Dense], nudged: Mapping[tuple[int, int], float] | None = None
    ) -> None:
        """`nudged` multiplies the squared averages of some factors, by column and factor."""
        self.batch, self.measures, self._nudged = batch, measures, nudged or {}
        self._views: dict[Where, ColumnView | JointView] = {}
        self._beside = [i for i, c in enumerate(batch.columns) if i not in measures and c.orbits > 1]
        self._ways: dict[tuple[int, int], list[tuple[tuple[int, ...], tuple[Where, int] | None, float]]] = {}

    def groups(self, terms: TableWeights) -> Iterable[tuple[tuple[int, ...], GroupTerms]]:
        """The groups, each by the split columns that it keeps, and its tables with their weights."""
        groups: dict[tuple[int, ...], GroupTerms] = {}
        for kinds, weight in terms.items():
            for choice in product(*map(self._ways_of, kinds)):
                kept: tuple[int, ...] = ()
                left: Left = ()
                means: list[float] = []
                for columns, one, mean in choice:
                    kept += columns
                    if one is None:
                        means.append(mean)
                    else:
                        left += (one,)
                into = groups.setdefault(kept if len(kept) < 2 else tuple(sorted(kept)), {})
                into[left] = into.get(left, 0.0) + (weighed(weight, means) if means else weight)
        return groups.items()

    def _ways_of(self, pair: tuple[int, int]) -> list[tuple[tuple[int, ...], tuple[Where, int] | None, float]]:
        """How a factor parts: the split columns that are kept, and what is left there, or else its squared average."""
        if pair not in self._ways:
            self._ways[pair] = list(self._parted(*pair))
        return self._ways[pair]

    def _parted(self, axis: int, kind: int) -> Iterator[tuple[tuple[int, ...], tuple[Where, int] | None, float]]:
        if (axis, kind) not in self.batch.numbers:
            if axis in self.measures:
                mean = squared_mean(self.batch.columns[axis].rows[kind], self.measures[axis])
                yield (), None, mean * self._nudged.get((axis, kind), 1.0)
                yield (axis,), (axis, kind), 1.0
            else:
                yield (), (axis, kind), 1.0
            return
        number = self.batch.numbers[axis, kind]
        looked, array, sizes = self.batch.joint[number]
        split = [c for c in looked if c in self.measures]
        for kept in (own for k in range(len(split) + 1) for own in combinations(split, k)):
            left = tuple(c for c in looked if c in kept or c not in self.measures)
            if not left:
                left_over = without_rounding(averaged(array, looked, self.measures), sizes)
                yield kept, None, float(np.square(left_over).sum())
            elif len(left) == 1:
                behind = len(self.batch.columns[left[0]].rows) + self.batch.behind[left[0]].index(number)
                yield kept, (left[0], behind), 1.0
            elif self._is_left(left, number):
                yield kept, (left, number), 1.0

    def _is_left(self, left: tuple[int, ...], number: int) -> bool:
        """Whether a joint factor has anything on these columns together: a sum over several has not."""
        rows = self.view(left).rows
        assert rows is not None
        return bool(rows[number].any())

    def view(self, where: Where) -> ColumnView | JointView:
        """How groups look at a column, or at tied ones."""
        if where not in self._views:
            self._views[where] = self._joint_view(where) if isinstance(where, tuple) else self._column_view(where)
        return self._views[where]

    def views(self, kept: Iterable[int], terms: GroupTerms) -> dict[Where, ColumnView | JointView]:
        """All that a group looks at: what its tables do, and the columns that are not split and could be told apart."""
        wheres = {where for left in terms for where, _ in left}
        looked = {c for where in wheres for c in (where if isinstance(where, tuple) else (where,))}
        tied = sorted(own for own in wheres if isinstance(own, tuple))
        found: list[Where] = [*sorted(looked.union(kept, self._beside)), *tied]
        return {where: self.view(where) for where in found}

    def _column_view(self, i: int) -> ColumnView:
        own = self.batch.view(i, self.measures.get(i))
        if i not in self.batch.behind:
            return own
        rows = list(own.rows or ())
        for number in self.batch.behind[i]:
            looked, array, sizes = self.batch.joint[number]
            others = {c: self.measures[c] for c in looked if c != i and c in self.measures}
            if len(others) < len(looked) - 1:  # which is never left on this column alone
                rows.append(np.zeros((1, self.batch.columns[i].orbits)))
                continue
            F = averaged(array, looked, others)
            F = F if own.centre is None else F @ own.centre
            rows.append(compressed(without_rounding(F, sizes)))
        spread = np.zeros((len(rows), own.spread.shape[1]))
        return ColumnView(tuple(rows), np.zeros(0), spread, own.counts, own.centre)

    def _joint_view(self, left: tuple[int, ...]) -> JointView:
        found = {}
        for number, (looked, array, sizes) in enumerate(self.batch.joint):
            others = {c: self.measures[c] for c in looked if c not in left and c in self.measures}
            if not set(left) <= set(looked) or len(others) + len(left) < len(looked):
                continue
            wide = averaged(array, looked, others).reshape(-1, *(self.batch.columns[c].orbits for c in left))
            for place, c in enumerate(left):
                if c in self.measures:
                    mean = np.tensordot(wide, self.measures[c], axes=(place + 1, 0))
                    wide = wide - np.expand_dims(mean, place + 1)
            found[number] = compressed(without_rounding(wide.reshape(len(wide), -1), sizes))
        return JointView(found)


def squared_mean(F: Dense, measure: Dense) -> float:
    """The squared norm of a factor's average."""
    return float(np.square(without_rounding((F @ measure)[:, None], np.abs(F).max(axis=1))).sum())


def weighed(weight: float, factors: Iterable[float]) -> float:
    """The weight times all factors: 0 where one of them is 0, and nowhere else."""
    known = list(factors)
    found = weight * prod(known)
    if found == 0 and weight > 0 and all(known):
        raise StrategyError(LOST)
    return found
