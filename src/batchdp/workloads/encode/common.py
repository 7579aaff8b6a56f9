"""The atoms that two batches have in common: fine enough for both, and how those of each are made of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

from scipy import sparse

from batchdp.errors import QueryError
from batchdp.queries.query import Cut, Value
from batchdp.workloads.encode.atoms import AmountAtoms, Atoms, LineAtoms, ListedAtoms
from batchdp.workloads.encode.demands import alive_of


def common_atoms(columns: Sequence[Atoms]) -> Atoms:
    """The coarsest atoms of one column that all of these are made of; refused where it is not declared alike."""
    return reduce(_common, columns)


def _common(one: Atoms, other: Atoms) -> Atoms:
    if isinstance(one, ListedAtoms) and isinstance(other, ListedAtoms):
        if (one.kind, one.declared) != (other.kind, other.declared):
            raise _unlike(one)
        # Of values that only one of them names, the other knows nothing: its last number.
        home = [{v: i for i, group in enumerate(own.groups) for v in group} for own in (one, other)]
        found: dict[tuple[int, ...], list[Value]] = {}
        for value in dict.fromkeys(v for own in (one, other) for group in own.groups for v in group):
            found.setdefault(tuple(known.get(value, len(known)) for known in home), []).append(value)
        return replace(one, groups=tuple(map(tuple, found.values())))
    if isinstance(one, ListedAtoms) or isinstance(other, ListedAtoms) or one.kind != other.kind:
        raise _unlike(one)
    cuts = tuple(sorted({*one.cuts, *other.cuts}))
    if isinstance(one, AmountAtoms) and isinstance(other, AmountAtoms):
        same = [(own.grid, own.ends, own.dropping, own.whole, own.clip) for own in (one, other)]
        if same[0] != same[1]:
            raise _unlike(one)
        return replace(one, cuts=cuts, summed=one.summed or other.summed)
    amount = next((own for own in (one, other) if isinstance(own, AmountAtoms)), None)
    if amount is not None:
        return replace(amount, cuts=cuts)
    assert isinstance(one, LineAtoms)
    assert isinstance(other, LineAtoms)
    if (one.declared, one.whole) != (other.declared, other.whole):
        raise _unlike(one)
    return replace(one, cuts=cuts)


def _unlike(column: Atoms) -> QueryError:
    return QueryError(f"column {column.column!r} is not declared alike in both")


def mixture(fine: Atoms, own: Atoms) -> sparse.csr_array:
    """What every atom that a record can have is among coarser atoms of the column: fine × own, rows that add up to 1.

    It is one of them, or, where records lie between two ends, a mixture of these.
    """
    alive = alive_of(fine).tolist()
    placed = [_places(fine, own, atom) for atom in alive]
    rows = [row for row, found in enumerate(placed) for _ in found]
    columns = [place for found in placed for place, _ in found]
    shares = [share for found in placed for _, share in found]
    return sparse.csr_array(sparse.coo_array((shares, (rows, columns)), shape=(len(alive), own.size)))


def _places(fine: Atoms, own: Atoms, atom: int) -> list[tuple[int, float]]:
    if atom == fine.size - 1:
        return [(own.size - 1, 1.0)]  # NULL
    if isinstance(fine, ListedAtoms):
        assert isinstance(own, ListedAtoms)
        value = fine.groups[atom][0] if atom < len(fine.groups) else None
        return [(next((i for i, group in enumerate(own.groups) if value in group), len(own.groups)), 1.0)]
    assert not isinstance(own, ListedAtoms)
    stretch, number = _stretch_of(fine, atom)
    start = fine.cuts[stretch - 1] if stretch else None
    coarse = 0 if start is None else _up_to(own.cuts, start)
    if isinstance(own, LineAtoms):
        return [(coarse, 1.0)]
    found = own.stretches[coarse]
    if number is None:
        assert found.beside is not None
        return [(found.beside, 1.0)]
    assert found.low is not None
    assert found.high is not None
    if found.low == found.high:
        return [(found.low, 1.0)]
    share = (number - found.first) / (found.last - found.first)
    return [(place, own) for place, own in ((found.low, 1 - share), (found.high, share)) if own]


def _stretch_of(fine: LineAtoms | AmountAtoms, atom: int) -> tuple[int, int | None]:
    """The stretch that an atom is in, and the step of the grid that it stands for; None where it stands for none."""
    if isinstance(fine, LineAtoms):
        return atom, None
    for i, one in enumerate(fine.stretches):
        if atom in one.atoms:
            return i, None if atom == one.beside else one.first if atom == one.low else one.last
    raise QueryError(f"column {fine.column!r} has no atom {atom}")


def _up_to(cuts: Sequence[Cut], start: Cut) -> int:
    """How many of some cuts are not after another."""
    return sum(cut <= start for cut in cuts)
