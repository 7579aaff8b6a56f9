"""The cells of a batch: nobody has to invent bins, the queries define them.

A batch whose classes are too many is split into blocks of queries with few classes each. A record has one class in
every block, so blocks share the privacy budget as measurements do: a block with expected error E (at its whole budget)
that gets the share p has E / p², and the best shares leave (Σ E^⅓)³ in all. Queries belong together when joining them
makes this smaller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from batchdp.domain import Domain
from batchdp.errors import QueryError
from batchdp.linalg.matrix import Dense, Indices, column_norms
from batchdp.queries.query import Query, ValueOf
from batchdp.workloads.encode.atoms import AmountAtoms, Atoms, parts_of, split
from batchdp.workloads.encode.classes import (
    MOST_AMOUNTS,
    MOST_ENTRIES,
    Classes,
    TooManyClassesError,
    classes_of,
    counting,
    joined,
    numbered,
)


def ends_of(classes: Classes, atoms: Sequence[Atoms], amount: str | None) -> tuple[tuple[int, int, int], ...]:
    """For every kind of record with an amount: its cells at the stretch's two ends, which differ, and the stretch."""
    states = np.zeros((1, 3), dtype=np.int64)  # at the lower end, at the upper end, which stretch
    for column, table in zip(atoms, classes.transitions, strict=True):
        if table is None:
            continue
        if isinstance(column, AmountAtoms) and column.column == amount:
            parts = [
                np.stack([table[states[:, 0], one.low], table[states[:, 0], one.high], np.full(len(states), i)], axis=1)
                for i, one in enumerate(column.stretches)
                if one.low != one.high
            ]
            states = np.concatenate(parts) if parts else np.zeros((0, 3), dtype=np.int64)
        else:
            alive = np.flatnonzero(column.possible)
            if len(states) * len(alive) > MOST_ENTRIES:
                raise QueryError(
                    f"the queries cut {amount} into too many stretches by group; ask for fewer bins or groups in it"
                )
            low, high = (table[states[:, end]][:, alive].astype(np.int64) for end in (0, 1))
            states = np.stack([low, high, np.broadcast_to(states[:, 2, None], low.shape)], axis=2).reshape(-1, 3)
        states = np.unique(states.astype(np.int64), axis=0)
    cells = classes.cells
    found = np.stack([cells[states[:, 0]], cells[states[:, 1]], states[:, 2]], axis=1)
    found = np.unique(found[found[:, 0] != found[:, 1]], axis=0)
    return tuple((int(low), int(high), int(stretch)) for low, high, stretch in found)


def counted(
    block: Block, atoms: Sequence[Atoms], codes: NDArray[np.integer], numbers: NDArray[np.object_]
) -> tuple[Indices, NDArray[np.object_]]:
    """Where records with these atoms lie: in which of the block's stretches, −1 for none, and Σu − n u₀.

    `numbers` has the counts, then the sums of the steps of every summed column.
    """
    summed = [(i, one) for i, one in enumerate(atoms) if isinstance(one, AmountAtoms) and one.summed]
    sums, (place, column) = next((k, own) for k, own in enumerate(summed, 1) if own[1].column == block.amount)
    stretch_of = np.full(column.size, -1, dtype=np.int64)
    first_of = np.zeros(column.size, dtype=object)
    for i, one in enumerate(column.stretches):
        if one.low is not None and one.low != one.high:
            stretch_of[one.low], first_of[one.low] = i, one.first
    own = codes[:, place]
    upper = codes.copy()
    upper[:, place] += stretch_of[own] >= 0
    low, high = block.classes.of(codes), block.classes.of(upper)
    known = {ends: k for k, ends in enumerate(block.ends)}
    keys = zip(low.tolist(), high.tolist(), stretch_of[own].tolist(), strict=True)
    which = np.array([known.get(key, -1) for key in keys], dtype=np.int64)
    return which, numbers[:, sums] - numbers[:, 0] * first_of[own]


MOST_TO_JOIN = 1024
"""Classes of a block that was joined from several: small enough to be optimised well."""
CANDIDATES = 3
"""Blocks that a group of queries is tried in."""


@dataclass(frozen=True, eq=False)
class Block:
    """Some of the queries, by position, and the classes that they tell apart."""

    queries: tuple[int, ...]
    columns: frozenset[str]
    classes: Classes
    amount: str | None = None
    """The column that its queries sum by the ends of stretches; there is one at most."""
    ends: tuple[tuple[int, int, int], ...] = ()
    """Of the stretches that its records can lie in: the cells of both ends, and which stretch."""

    @cached_property
    def cost(self) -> float:
        """The cube root of an estimate of its error: the better of noise on data and noise on results."""
        W = self.classes.matrix
        on_results = len(self.queries) * float(column_norms(W, 1).max(initial=0.0)) ** 2
        return float(min(on_results, W.multiply(W).sum()) ** (1 / 3))

    def in_order(self) -> Block:
        """With queries and classes in an order that does not depend on how it was joined."""
        order = np.argsort(self.queries)
        return Block(tuple(sorted(self.queries)), self.columns, self.classes.in_order(order), self.amount)

    def with_ends(self, atoms: Sequence[Atoms]) -> Block:
        """With the stretches that its records can lie in."""
        return replace(self, ends=ends_of(self.classes, atoms, self.amount)) if self.amount is not None else self

    def with_(self, other: Block, atoms: Sequence[Atoms], most: int) -> Block:
        """Both as one; `TooManyClassesError` if it would have more than `most` classes, or sum two columns."""
        if self.amount is not None and other.amount is not None and self.amount != other.amount:
            raise TooManyClassesError  # a record between the ends of both is no mixture that two sums could tell
        both = joined(self.classes, other.classes, atoms, most)
        return Block(self.queries + other.queries, self.columns | other.columns, both, self.amount or other.amount)


def blocks(
    queries: Sequence[Query],
    atoms: Sequence[Atoms],
    most: int,
    progress: Callable[[float, str], object] | None = None,
    partition: Sequence[Sequence[int]] | None = None,
) -> tuple[Block, ...]:
    """One block with all queries if it has at most `most` classes, otherwise several; or those of a known partition."""
    by_ends = {one.column for one in atoms if isinstance(one, AmountAtoms)}
    singles = []
    for q, query in enumerate(queries):
        if progress is not None:
            progress(q / len(queries), "Reading queries")
        parts = list(parts_of(query.amount))
        columns = frozenset(part.column for part in parts)
        amount = next((part.column for part in parts if isinstance(part, ValueOf) and part.column in by_ends), None)
        try:
            singles.append(Block((q,), columns, classes_of(query, atoms, most), amount))
        except TooManyClassesError:
            raise QueryError(_too_wide(query, columns, atoms, most)) from None
    if partition is not None:
        if not all(partition) or sorted(q for group in partition for q in group) != list(range(len(queries))):
            raise QueryError("the blocks of queries do not hold every query once")
        known = [_together([singles[q] for q in group], atoms, most, whole=True) for group in partition]
        if not all(known):
            raise QueryError(f"the blocks of queries tell more than {most} classes of records apart")
        return tuple(group[0].in_order().with_ends(atoms) for group in known)
    # Queries over the same columns first: their classes merge best.
    alike: dict[frozenset[str], list[Block]] = {}
    for single in sorted(singles, key=lambda block: -len(block.columns)):
        alike.setdefault(single.columns, []).append(single)
    pieces = [piece for group in alike.values() for piece in _together(group, atoms, most)]
    whole = _together(pieces, atoms, most, whole=True)
    found = whole if len(whole) == 1 else _grouped(pieces, atoms, most, progress)
    return tuple(sorted((block.in_order().with_ends(atoms) for block in found), key=lambda block: block.queries))


def _together(group: list[Block], atoms: Sequence[Atoms], most: int, *, whole: bool = False) -> list[Block]:
    """As one block, joined in halves; where that is too large, the halves (or nothing, if only a whole will do)."""
    if len(group) == 1:
        return group
    middle = len(group) // 2
    left, right = (_together(half, atoms, most, whole=whole) for half in (group[:middle], group[middle:]))
    if len(left) == len(right) == 1:
        try:
            return [left[0].with_(right[0], atoms, most)]
        except TooManyClassesError:
            pass
    return [] if whole else left + right


def _grouped(
    pieces: list[Block], atoms: Sequence[Atoms], most: int, progress: Callable[[float, str], object] | None
) -> list[Block]:
    """Pieces joined one by one to whichever block they make cheaper together, or kept as a block of their own."""
    found: list[Block] = []
    for i, piece in enumerate(pieces):
        if progress is not None:
            progress(i / len(pieces), "Grouping queries")
        best, partner, gain = piece, None, 0.0
        near = sorted(found, key=lambda other: -len(piece.columns & other.columns) / len(piece.columns | other.columns))
        for other in near[:CANDIDATES]:
            if piece.columns and not piece.columns & other.columns:
                break
            try:
                both = other.with_(piece, atoms, min(most, MOST_TO_JOIN))
            except TooManyClassesError:
                continue
            if (saved := piece.cost + other.cost - both.cost) > gain:
                best, partner, gain = both, other, saved
        if partner is not None:
            found.remove(partner)
        found.append(best)
    return found


def _too_wide(query: Query, columns: frozenset[str], atoms: Sequence[Atoms], most: int) -> str:
    widest = sorted((column for column in atoms if column.column in columns), key=lambda column: -column.size)
    listed = ", ".join(f"{column.column} ({column.size} pieces)" for column in widest[:3])
    return (
        f"query {query.name!r} tells more than {most} classes of records apart; its widest columns are {listed}: "
        "use fewer columns, cut points or values in it, or raise max_cells"
    )


MOST_RECORDS = 4_000_000
"""Combinations of atoms that can be gone through one by one."""
MOST_MEETINGS = 4096

Meetings = tuple[tuple[int, ...], ...]
"""Sets of blocks that a record can have a cell in at once, none inside another."""


def meetings(blocks: Sequence[Block], atoms: Sequence[Atoms]) -> Meetings | None:
    """All largest sets of blocks that one record can have a cell in; None where that may be all of them."""
    if len(blocks) < 2 or records(blocks, atoms) > MOST_RECORDS:
        return None
    looks = [(b, counting(one)) for b, block in enumerate(blocks) for one in at_ends(block, atoms)]
    try:
        patterns = reduce(lambda one, other: joined(one, other, atoms, MOST_MEETINGS), (one for _, one in looks))
    except TooManyClassesError:
        return None
    counted = np.asarray(patterns.amounts.toarray()) != 0  # for every state that a record reaches
    found = largest({tuple(sorted({looks[row][0] for row in np.flatnonzero(own).tolist()})) for own in counted.T})
    met = {block for own in found for block in own}
    if len(met) < len(blocks):  # a block that no record is in: nothing is claimed
        return None
    return None if len(found) == 1 else found


def looked_at(blocks: Sequence[Block]) -> list[int]:
    """The columns of atoms that some block looks at."""
    return sorted({i for block in blocks for i, table in enumerate(block.classes.transitions) if table is not None})


def records(blocks: Sequence[Block], atoms: Sequence[Atoms]) -> int:
    """How many combinations of atoms there are in the columns that some block looks at."""
    return prod(int(atoms[i].possible.sum()) for i in looked_at(blocks))


def largest(found: set[tuple[int, ...]]) -> Meetings:
    """Those that are not inside another."""
    sets = sorted((frozenset(own) for own in found), key=len, reverse=True)
    kept: list[frozenset[int]] = []
    for own in sets:
        if not any(own <= other for other in kept):
            kept.append(own)
    return tuple(sorted(tuple(sorted(own)) for own in kept))


def at_ends(block: Block, atoms: Sequence[Atoms]) -> list[Classes]:
    """The block's classes; where it sums amounts, once with all records at the lower ends, and once at the upper ones.

    A record between two ends is in every block that either end is in.
    """
    place = next((i for i, one in enumerate(atoms) if one.column == block.amount), None)
    column = None if place is None else atoms[place]
    table = None if place is None else block.classes.transitions[place]
    if place is None or table is None or not isinstance(column, AmountAtoms):
        return [block.classes]
    found = []
    for upper in (False, True):
        moved = table.copy()
        for one in column.stretches:
            if one.low is not None and one.high is not None:
                moved[:, [one.low, one.high]] = table[:, [one.high if upper else one.low]]
        changed = (*block.classes.transitions[:place], moved, *block.classes.transitions[place + 1 :])
        found.append(Classes(changed, block.classes.amounts))
    return found


MOST_CELLS = 8192
"""In one block, unless the caller says otherwise."""
MOST_KINDS = 100_000
"""Of records, by all blocks together."""
MOST_LISTED = 50_000
"""Of records, by the cells that they have in all blocks."""
MOST_ADDED = 20_000_000
"""Of what records of every kind add to the queries."""
WHOLE = 1e-9
"""How far a sum over blocks may be from the whole number that it is, relative to its size."""


@dataclass(frozen=True, eq=False)
class Cells:
    """How records are counted: the atoms of every column, and the cell of every combination in every block."""

    names: tuple[str, ...]
    """Of the queries."""
    atoms: tuple[Atoms, ...]
    blocks: tuple[Block, ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many cells every block has."""
        return tuple(block.classes.size for block in self.blocks)

    @property
    def matrix(self) -> sparse.csr_array:
        """W: query × cell, block after block; a query that spans blocks has entries in each."""
        stacked = sparse.csr_array(sparse.block_diag([block.classes.matrix for block in self.blocks], format="csr"))
        return self._placed(stacked)

    def _placed(self, stacked: sparse.csr_array) -> sparse.csr_array:
        """What all blocks add to their queries, block under block, as what is added to every query."""
        rows = np.concatenate([block.queries for block in self.blocks])
        if len(rows) == len(self.names):
            return stacked[np.argsort(rows)]
        placing = sparse.csr_array((np.ones(len(rows)), (rows, np.arange(len(rows)))), (len(self.names), len(rows)))
        return sparse.csr_array(placing @ stacked)

    @cached_property
    def kinds(self) -> sparse.csr_array:
        """What a record of every kind adds to every query, without columns where kinds are too many.

        Cells of several blocks are no kinds of records: a record has one cell in each, and not all of these meet.
        """
        limit = MOST_AMOUNTS.set(MOST_ADDED)
        try:
            classes = (block.classes for block in self.blocks)
            every = reduce(lambda one, other: joined(one, other, self.atoms, MOST_KINDS), classes)
        except (TooManyClassesError, QueryError):
            return sparse.csr_array((len(self.names), 0))
        finally:
            MOST_AMOUNTS.reset(limit)
        found = self._placed(sparse.csr_array(every.amounts))
        near = np.rint(found.data)
        found.data = np.where(np.abs(found.data - near) <= WHOLE * np.maximum(1, np.abs(near)), near, found.data)
        found.eliminate_zeros()
        return found

    @cached_property
    def meetings(self) -> Meetings | None:
        """Which blocks one record can have a cell in at once; None where that may be all of them."""
        return meetings(self.blocks, self.atoms)

    @cached_property
    def records(self) -> NDArray[np.int32] | None:
        """For every kind of record its cell in each block, −1 for none; None of one block, and where they are many."""
        if len(self.blocks) < 2 or any(block.amount is not None for block in self.blocks):
            return None
        try:
            places = (numbered(block.classes) for block in self.blocks)
            every = reduce(lambda one, other: joined(one, other, self.atoms, MOST_LISTED), places)
        except (TooManyClassesError, QueryError):
            return None
        found = every.amounts.toarray().T.astype(np.int32) - 1
        held = all(len(np.unique(own[own >= 0])) == size for own, size in zip(found.T, self.sizes, strict=True))
        return found if held else None  # of a block that no record is in nothing is claimed

    @cached_property
    def ends(self) -> tuple[tuple[int, int, int], ...]:
        """Pairs of cells that are the two ends of a stretch, −1 for none, and its steps, block after block."""
        found = []
        start = 0
        for block in self.blocks:
            column = next((one for one in self.atoms if one.column == block.amount), None)
            for low, high, which in block.ends:
                assert isinstance(column, AmountAtoms)
                stretch = column.stretches[which]
                below, above = (cell + start if cell >= 0 else -1 for cell in (low, high))
                found.append((below, above, stretch.last - stretch.first))
            start += block.classes.size
        return tuple(found)

    def counts(self, batches: Iterable[tuple[NDArray[np.integer], NDArray[Any]]]) -> NDArray[Any]:
        """How many records every cell has, from counted combinations of atoms; behind them the sums of all `ends`."""
        totals = [np.zeros(size, dtype=np.int64) for size in self.sizes]
        along = [np.zeros(len(block.ends), dtype=object) for block in self.blocks]
        for codes, numbers in batches:
            many = numbers if numbers.ndim == 1 else numbers[:, 0].astype(np.int64)
            for total, sums, block in zip(totals, along, self.blocks, strict=True):
                cells = block.classes.of(codes)
                np.add.at(total, cells[cells >= 0], many[cells >= 0])
                if block.ends:
                    which, steps = counted(block, self.atoms, codes, numbers)
                    np.add.at(sums, which[which >= 0], steps[which >= 0])
        return np.concatenate(totals if not self.ends else [*(total.astype(object) for total in totals), *along])

    def answers(self, counts: NDArray[Any]) -> Dense:
        """The queries without noise, hence secret: W on the counts, each stretch shared between its ends."""
        W = sparse.csc_array(self.matrix)
        x = counts[: W.shape[1]].astype(np.float64)
        for (low, high, steps), along in zip(self.ends, counts[W.shape[1] :].tolist(), strict=True):
            for cell, share in ((low, -along / steps), (high, along / steps)):
                if cell >= 0:
                    x[cell] += share
        return np.asarray(W @ x)


def cells_of(
    queries: Sequence[Query],
    domain: Domain,
    *,
    most: int = MOST_CELLS,
    progress: Callable[[float, str], object] | None = None,
    partition: Sequence[Sequence[int]] | None = None,
) -> Cells:
    """The cells that the queries tell apart, in one block if there are at most `most`, else in several.

    A `partition` into blocks that was found before saves finding it again.
    """
    if not queries:
        raise QueryError("there are no queries; write at least one SELECT COUNT(*) FROM the table")
    atoms = split(queries, domain, ends=True)
    return Cells(tuple(query.name for query in queries), atoms, blocks(queries, atoms, most, progress, partition))
