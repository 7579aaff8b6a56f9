"""All measurements of a component strategy as integers, group by group, each with a lattice and a noise of its own.

A group's measurements are one vector for one mechanism: every list of the group adds up to its largest squared
sensitivity, and the group's is their product, because lists look at different columns. A component of whole tables is
a group with the one measurement 2^b ⊗ (n_i I − J), whose squared sensitivity is 4^b Π n_i (n_i − 1) for every record.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from math import prod
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from batchdp.errors import LatticeError
from batchdp.linalg.matrix import Dense
from batchdp.mechanism.measurement import LARGEST, Integers, check_cap, check_room
from batchdp.mechanism.residual.integers import IntegerPiece, centre_columns, masses_of, quantise_piece, scalar_pieces
from batchdp.mechanism.sensitivity import largest_squares
from batchdp.mechanism.tables import IntegerAxis, IntegerPart, TableLattice
from batchdp.privacy import GAUSSIAN, Budget, Noise
from batchdp.strategies.residual.columns import Column
from batchdp.strategies.residual.strategy import Closure, ListedParts, ResidualStrategy, WholeParts
from batchdp.strategies.residual.terms import ResidualFactor, ResidualTerm, TermGroup
from batchdp.workloads.kronecker import KroneckerWorkload

if TYPE_CHECKING:
    from batchdp.mechanism.residual.tables import TableReader


MOST_BITS = 40
"""Of all lists of a group together: noise has its room above."""
FEWEST_BITS = 12
"""Of one list."""
MOST_EXTRA = 30
"""Of a single number."""

IntegerTerm = ResidualTerm[IntegerPiece]
"""A measurement: the product of its pieces, which look at different columns."""


@dataclass(frozen=True, eq=False)
class IntegerGroup:
    """Measurements with one noise: one piece of every list, in all combinations."""

    lists: tuple[tuple[IntegerPiece, ...], ...]
    bits: int
    moved: int
    """Δ², how much one record can change all of them together, squared: exact."""
    share: float
    """Of the budget."""
    tables: frozenset[int] | None = None

    def parts(self) -> Iterator[IntegerTerm]:
        """The last list fastest."""
        return (ResidualTerm(pieces, 1.0, self.tables) for pieces in product(*self.lists))

    @property
    def columns(self) -> tuple[int, ...]:
        """That it looks at."""
        return tuple(sorted({i for own in self.lists for piece in own for i in piece.columns}))

    def largest(self, columns: tuple[Column, ...]) -> int:
        """The largest |Q_ij| of its measurements."""
        return prod(max((_largest(p, columns) for p in own), default=0) for own in self.lists)


def _largest(piece: IntegerPiece, columns: tuple[Column, ...]) -> int:
    """The largest entry of K and its spreads."""
    return int(np.abs(piece.measure).max(initial=0)) * prod(
        max(1, int(columns[i].counts[o]) - 1) for i, o in piece.spread
    )


@dataclass(frozen=True, eq=False)
class ComponentLattice(TableLattice):
    """The integer measurements of a strategy; groups of whole tables are made when they are looked at."""

    noise: ClassVar[Noise] = GAUSSIAN

    workload: KroneckerWorkload
    columns: tuple[Column, ...]
    averages: tuple[Dense, ...]
    """For every column the measure that it is averaged by, as in `ResidualStrategy`."""
    largest_total: int
    """The public cap on the number of records that no measurement can overflow at."""
    groups: WholeGroups | tuple[IntegerGroup, ...]

    @cached_property
    def sizes(self) -> Integers:
        """How many measurements every group has."""
        columns = self.columns
        if isinstance(self.groups, WholeGroups):
            return self.groups.sizes
        return np.array([sum(prod(p.shape(columns)) for p in g.parts()) for g in self.groups], dtype=np.int64)

    @property
    def largest_measured(self) -> int:
        """Measurements of a group."""
        return int(self.sizes.max(initial=0))

    @property
    def is_whole(self) -> bool:
        """Whether components are of whole tables, for which nothing is rounded."""
        return isinstance(self.groups, WholeGroups)

    @cached_property
    def starts(self) -> Integers:
        """Where the measurements of every group begin."""
        return np.concatenate([[0], np.cumsum(self.sizes)]).astype(np.int64)

    def _products(self) -> Iterator[tuple[int, int, IntegerTerm]]:
        """Group, first measurement and product of pieces."""
        for g, group in enumerate(self.groups):
            start = int(self.starts[g])
            for part in group.parts():
                yield g, start, part
                start += prod(part.shape(self.columns))

    @cached_property
    def _listed(self) -> list[tuple[int, int, IntegerTerm]]:
        return list(self._products())

    def parts(self) -> Iterator[tuple[int, int, IntegerPart]]:
        """All parts: group, first measurement, part."""
        orbits = [c.orbit[c.value] for c in self.columns]
        spreads: dict[tuple[int, int], IntegerAxis] = {}
        for g, start, found in self._products():
            axes = []
            for piece in found.pieces:
                own = tuple(orbits[i] for i in piece.matrix), tuple(self.columns[i].orbits for i in piece.matrix)
                axes.append(IntegerAxis(piece.matrix, *own, piece.measure))
                for spread in piece.spread:
                    if spread not in spreads:
                        spreads[spread] = _spread_axis(self.columns, *spread)
                    axes.append(spreads[spread])
            yield g, start, IntegerPart(tuple(axes))

    def parts_of(self, table: int, columns: Collection[int]) -> Iterator[tuple[int, int, IntegerTerm]]:
        """Those that a table of these columns is read from."""
        if not isinstance(self.groups, WholeGroups):
            yield from (own for own in self._listed if own[2].serves(table, columns))
            return
        for found in self.groups.closure.within(columns):
            (part,) = self.groups[found].parts()
            yield found, int(self.starts[found]), part

    def reader(self, scales: Dense) -> TableReader:
        """How tables are read from measurements with noise of these scales."""
        from batchdp.mechanism.residual.tables import TableReader

        return TableReader(self, scales)


def _spread_axis(columns: tuple[Column, ...], i: int, orbit: int) -> IntegerAxis:
    """The values of an orbit, in their order."""
    there = columns[i].orbit == orbit
    places = np.where(there, np.cumsum(there) - 1, -1)[columns[i].value]
    return IntegerAxis((i,), (places,), (int(columns[i].counts[orbit]),), is_centred=True)


@dataclass(frozen=True, eq=False)
class WholeGroups:
    """The components of whole tables: two arrays instead of hundreds of thousands of objects."""

    closure: Closure
    shares: Dense
    columns: tuple[Column, ...]
    bits: Integers

    def __len__(self) -> int:
        return len(self.bits)

    def __iter__(self) -> Iterator[IntegerGroup]:
        return (self[a] for a in range(len(self)))

    def __getitem__(self, a: int) -> IntegerGroup:
        if not 0 <= a < len(self):
            raise IndexError(a)
        own = self.closure.columns_of(a)
        counts = [int(self.columns[i].counts[0]) for i in own]
        b = int(self.bits[a])
        K = np.array([[1 << b]], dtype=np.int64)
        piece = IntegerPiece((), tuple((i, 0) for i in own), K, np.array([[1 / ((1 << b) * prod(counts))]]))
        squares = prod(n * (n - 1) for n in counts) << 2 * b
        return IntegerGroup(((piece,),), b, squares, float(self.shares[a]))

    @cached_property
    def sizes(self) -> Integers:
        """Measurements of every component."""
        sizes = np.array([int(c.counts[0]) for c in self.columns], dtype=object)
        found = [int(n) for rows in self.closure.sets for n in np.prod(sizes[rows], axis=1)]
        if max(found, default=0) >= 2**62:
            raise LatticeError(f"a component has {max(found):.3g} measurements; ask for tables of fewer columns")
        return np.array(found, dtype=np.int64)


def quantise_components(
    strategy: ResidualStrategy, *, largest_total: int, budget: Budget, factor: int, exactly: bool = False
) -> ComponentLattice:
    """The strategy in integers, fine enough for noise of 64 steps and more at this ρ and for these neighbours."""
    cap = check_cap(largest_total)
    parts = strategy.parts
    groups: WholeGroups | tuple[IntegerGroup, ...]
    if isinstance(parts, WholeParts):
        groups = _quantise_whole(strategy, parts, float(budget), factor)
    else:
        assert isinstance(parts, ListedParts)
        groups = _quantise_listed(strategy, parts, cap)
    lattice = ComponentLattice(strategy.workload, strategy.columns, strategy.averages, cap, groups)
    _check_room(lattice)
    return lattice


LEAST_STEPS = 128
"""Of the noise where bits are chosen by it: twice what is needed."""


def _quantise_whole(strategy: ResidualStrategy, parts: WholeParts, rho: float, factor: int) -> WholeGroups:
    sizes = np.array([float(c.counts[0]) for c in strategy.columns])
    squares = np.concatenate([np.prod(sizes[rows] * (sizes[rows] - 1), axis=1) for rows in parts.closure.sets])
    steps = factor * np.sqrt(squares / (2 * rho * parts.shares))
    bits = np.maximum(0, np.ceil(np.log2(LEAST_STEPS / steps))).astype(np.int64)
    return WholeGroups(parts.closure, parts.shares, strategy.columns, bits)


def _check_room(lattice: ComponentLattice) -> None:
    """Refuse where a measurement of as many records as the cap allows could leave 61 bits."""
    columns = lattice.columns
    groups = lattice.groups
    if isinstance(groups, WholeGroups):
        sizes = np.array([max(1.0, float(c.counts[0]) - 1) for c in columns])
        top = np.concatenate([np.prod(sizes[rows], axis=1) for rows in groups.closure.sets]) * 2.0**groups.bits
        largest = max(groups[int(a)].largest(columns) for a in np.argsort(top)[-2:])
    else:
        largest = max((group.largest(columns) for group in groups), default=1)
    check_room(largest, lattice.largest_total)


def _quantise_listed(strategy: ResidualStrategy, parts: ListedParts, cap: int) -> tuple[IntegerGroup, ...]:
    columns = strategy.columns
    known = {i: masses_of(c, strategy.averages[i]) for i, c in enumerate(columns) if c.orbits > 1}
    masses = {i: found for i, found in known.items() if found is not None}
    room = min(MOST_BITS, (LARGEST // cap).bit_length() - 1)
    return tuple(_quantise_group(group, columns, masses, room) for group in parts.groups)


def _quantise_group(
    group: TermGroup, columns: tuple[Column, ...], masses: dict[int, tuple[Integers, int]], room: int
) -> IntegerGroup:
    """A group's lists, each on a lattice of its own; the room is shared alike."""
    looked = [{i for p in own for i in p.columns} for own in group.lists]
    if sum(map(len, looked)) != len(set().union(*looked)):
        raise LatticeError("two lists of a group look at the same column, so that their sensitivities do not multiply")
    one = np.ones((1, 1))
    given = group.lists or ((ResidualFactor((), (), one, one),),)  # nothing but the number of records
    # Numbers without matrix columns are measured in their proportion, in few bits: the others get the room.
    scalar = [not any(p.matrix for p in own) for own in given]
    ready = {l: scalar_pieces(own, columns) for l, own in enumerate(given) if scalar[l]}
    for made in ready.values():
        room -= int(np.ceil(np.log2(max(_largest(p, columns) for p in made))))
    sharing = max(1, scalar.count(False))
    lists: list[tuple[IntegerPiece, ...]] = []
    bits, squares = 0, 1
    for l, own in enumerate(given):
        if l in ready:
            each = max(0, min(room, MOST_EXTRA)) if all(scalar) and not lists else 0
            made = tuple(replace(p, measure=p.measure << each, recover=p.recover / 2.0**each) for p in ready[l])
        else:
            top = max((float(np.abs(p.measure).max(initial=0.0)) for p in own), default=0.0) or 1.0
            common = prod(masses[i][1] for i in {i for p in own for i in centre_columns(p, columns, masses)})
            all_bits, own_masses = room // sharing - int(np.ceil(np.log2(top))), masses
            each = all_bits - common.bit_length()
            if all_bits < FEWEST_BITS or each < 6:
                # Not enough for exact centring: fewer bits are lost without it, and the bias is looked at.
                each, common, own_masses = all_bits, 1, {}
            if each < FEWEST_BITS - 6:
                raise LatticeError(f"the cap leaves {each} bits for each measurement; lower the public cap max_rows")
            made = tuple(quantise_piece(p, columns, each, own_masses, common) for p in own)
        lists.append(made)
        bits += each
        squares *= largest_squares(made, columns)
    return IntegerGroup(tuple(lists), bits, squares, group.scale**2, group.tables)
