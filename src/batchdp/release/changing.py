"""`change`: what changed between two releases of the same tables, of different snapshots, with intervals.

The two noises are independent, so a difference has the law of all draws together, and a ratio an interval by it (as
Fieller's); where the noises have no common law, or an answer is no ratio, the intervals of both releases, each at half
of what may miss, bound the change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from batchdp.errors import ReleaseError
from batchdp.linalg.matrix import Dense
from batchdp.mechanism.derived import estimates
from batchdp.mechanism.law import NoiseLaw, checked_confidence
from batchdp.mechanism.reader import LawReader
from batchdp.queries.expressions import Affine, Asked, Combination, Ratio, parts_of
from batchdp.release.release import Release
from batchdp.release.verify import check_release

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]

MOST_ANSWERS = 20_000
DATED = ("dates", "bins", "groupings")
"""What of a column of dates may differ between snapshots."""


def change(old: Release, new: Release, *, confidence: float | None = None) -> pd.DataFrame:
    """Differences and ratios between the answers of two releases, one row per answer, with intervals. Free.

    Somebody who is in both snapshots loses what both releases lose together: `attrs["charges"]` of the frame says it.

    Args:
        old: the release of the earlier snapshot.
        new: a release of another snapshot of the same table, for the same statements. Where the domain's dates were
            moved in between, answers are matched by their places.
        confidence: the confidence of the intervals; that of the new release if left out.
    """
    import pandas as pd

    check_comparable(old, new)
    wanted = new.confidence if confidence is None else confidence
    checked_confidence(wanted)
    names = [_both(a, b) for a, b in zip(old.names, new.names, strict=True)]
    tables = np.empty(len(names), dtype=object)
    for table in new.tables:
        tables[np.asarray(table.answers)] = table.name
    frame = pd.DataFrame({"table": tables, "name": names, "old": old.values, "new": new.values})
    for name, found in _figures(old, new, wanted).items():
        frame[name] = found
    frame.attrs = {"old": old.certificate.snapshot, "new": new.certificate.snapshot, "confidence": wanted}
    frame.attrs["charges"] = charges(old, new)
    return frame


def charges(old: Release, new: Release) -> str:
    """What both releases cost somebody who is in both."""
    one, other = old.certificate, new.certificate
    each = f"{one.strength} for {one.snapshot!r} and {other.strength} for {other.snapshot!r}"
    if one.noise.unit != other.noise.unit:
        return f"{each}; the ledger adds them up for whoever is in both"
    return f"{each}, {one.noise.letter} = {one.budget + other.budget:g} together for whoever is in both"


def check_comparable(old: Release, new: Release) -> None:
    """Refuse what has no change between it: forged, the same, foreign, or differently capped."""
    for release in (old, new):
        if not isinstance(release, Release):
            raise ReleaseError(f"a {type(release).__name__} is not a release; give two that load_release returns")
        check_release(release)
    one, other = old.certificate, new.certificate
    named = f"releases {one.release_id!r} and {other.release_id!r}"
    if one.release_id == other.release_id:
        raise ReleaseError(f"release {one.release_id!r} is given twice; give releases of two snapshots")
    if not one.snapshot or not other.snapshot:
        without = one.release_id if not one.snapshot else other.release_id
        raise ReleaseError(f"release {without!r} has no snapshot; say which state of the table it is with snapshot=")
    if one.snapshot == other.snapshot:
        raise ReleaseError(f"{named} are both of snapshot {one.snapshot!r}: their difference is noise; combine them")
    for name in ("table", "neighbours", "privacy_unit"):
        a, b = getattr(one, name), getattr(other, name)
        if a != b:
            raise ReleaseError(f"{named} have {name}={a!r} and {name}={b!r}; give releases of the same table and caps")
    for name, a, b in _asked(old, new):
        if a != b:
            raise ReleaseError(f"{named} differ in {name}; plan both alike, dates that move with the snapshot aside")
    if len(old.answers) > MOST_ANSWERS:
        raise ReleaseError(f"{len(old.answers):,} answers are more than {MOST_ANSWERS:,}; compare smaller releases")


def _asked(old: Release, new: Release) -> Iterator[tuple[str, Any, Any]]:
    """What both must have alike."""
    first, second = old.source, new.source
    yield "whether a plan was answered", first is None, second is None
    if first is None or second is None:
        yield "their answers", old.names, new.names
        yield "their queries", True, _asks_alike(old.reader, new.reader)
        return
    yield "their SQL", first.sql, second.sql
    yield "their marginals", first.marginals, second.marginals
    yield "their domains or caps", _dateless(first.header()["domain"]), _dateless(second.header()["domain"])
    yield "how many answers they have", len(old.answers), len(new.answers)
    first_tables, second_tables = (
        [(one.name, one.columns, one.shape) for one in release.tables] for release in (old, new)
    )
    yield "their tables", first_tables, second_tables


def _asks_alike(old: Any, new: Any) -> bool:
    """Whether the answers of two strategies stand for the same."""
    if hasattr(old.workload, "asks_as"):
        return hasattr(new.workload, "asks_as") and bool(old.workload.asks_as(new.workload))
    one, other = old.workload, new.workload
    return not hasattr(other, "asks_as") and one.shape == other.shape and not abs(one - other).max()


def _dateless(domain: Any) -> Any:
    """A domain without what moves with its dates."""
    if isinstance(domain, Mapping):
        dated = "dates" in domain
        return {name: _dateless(part) for name, part in domain.items() if not (dated and name in DATED)}
    return domain


def _both(old: str, new: str) -> str:
    return new if old == new else f"{old} → {new}"


@dataclass(frozen=True, eq=False)
class _Pair:
    """The answers of one release as expressions over their parts, and the parts."""

    asked: list[Asked[int]]
    parts: np.ndarray[Any, np.dtype[np.int64]]
    values: Dense
    rows: sparse.csr_array

    @classmethod
    def of(cls, release: Release) -> _Pair:
        layout = release.layout
        asked = [
            Asked(
                layout.name(block, k),
                of if (of := layout.number(block, k)) is not None else _expression(release, block, k),
            )
            for block in layout.each_block()
            for k in range(block.size)
        ]
        parts = np.unique([part for one in asked for part in parts_of(one.of)]).astype(np.int64)
        return cls(asked, parts, release.picked(parts), release.reader.rows(parts))


def _expression(release: Release, block: Any, k: int) -> Any:
    return release.layout.listed[1][block.listed + k].of


def _figures(old: Release, new: Release, confidence: float) -> dict[str, Dense]:
    """The columns of the frame that are about the change."""
    first, second = _Pair.of(old), _Pair.of(new)
    half = 1 - (1 - confidence) / 2
    bounds = [
        [release.with_confidence(half).to_frame()[end].to_numpy() for end in ("low", "high")] for release in (old, new)
    ]
    (a_low, a_high), (b_low, b_high) = bounds
    found = {
        "difference": new.values - old.values,
        "standard_error": np.hypot(old.standard_errors, new.standard_errors),
        "low": b_low - a_high,
        "high": b_high - a_low,
    }
    positive = (a_low > 0) & (b_low > 0)
    with np.errstate(all="ignore"):
        found |= {
            "ratio": np.where(a_low > 0, new.values / old.values, np.nan),
            "ratio_low": np.where(positive, b_low / a_high, np.nan),
            "ratio_high": np.where(positive, b_high / a_low, np.nan),
        }
    alike = old.reader.noise == new.reader.noise and not old.reader.shape_text
    if alike:
        _refine(found, first, second, old.reader.noise, confidence)
    return found


def _refine(found: dict[str, Dense], first: _Pair, second: _Pair, noise: Any, confidence: float) -> None:
    """By the law of all draws together, wherever the change is a sum of ratios."""
    B = sparse.csr_array(sparse.block_diag([first.rows, second.rows], format="csr"))
    values = np.concatenate([first.values, second.values])
    law = LawReader(tuple(map(str, range(len(values)))), values, NoiseLaw(B, 1.0, noise))
    shift = len(first.parts)
    places = (
        {int(part): i for i, part in enumerate(first.parts)},
        {int(p): i + shift for i, p in enumerate(second.parts)},
    )
    differences: list[tuple[int, Asked[int]]] = []
    ratios: list[tuple[int, Asked[int]]] = []
    for k, (a, b) in enumerate(zip(first.asked, second.asked, strict=True)):
        one, other = (_combination(x.of, own) for x, own in zip((a, b), places, strict=True))
        if one is not None and other is not None:
            differences.append((k, Asked("difference", _minus(other, one))))
        if isinstance(a.of, int) and isinstance(b.of, int):
            ratio = Ratio(Affine(0.0, ((1.0, places[1][b.of]),)), Affine(0.0, ((1.0, places[0][a.of]),)))
            ratios.append((k, Asked("ratio", Combination(Affine(), (ratio,)))))
    for some, columns in (
        (differences, ("difference", "standard_error", "low", "high")),
        (ratios, ("ratio", "", "ratio_low", "ratio_high")),
    ):
        made = estimates([one for _, one in some], values, law, confidence)
        own = [k for k, _ in some]
        for name, column in zip(columns, (made.values, made.standard_errors, made.low, made.high), strict=True):
            if name:
                found[name][own] = column


def _combination(of: Any, places: Mapping[int, int]) -> Combination[int] | None:
    """An answer as a sum of ratios, over the parts of both; None where it is none."""
    if isinstance(of, int):
        return Combination(Affine(0.0, ((1.0, places[of]),)))
    return of.mapped(places.__getitem__) if isinstance(of, Combination) else None


def _minus(new: Combination[int], old: Combination[int]) -> Combination[int]:
    """One less the other."""

    def negative(one: Affine[int]) -> Affine[int]:
        return Affine(-one.constant, tuple((-factor, part) for factor, part in one.terms))

    plain = Affine(new.plain.constant - old.plain.constant, (*new.plain.terms, *negative(old.plain).terms))
    return Combination(plain, (*new.ratios, *(Ratio(negative(one.numerator), one.denominator) for one in old.ratios)))
