"""What stands beside consistent answers: the noisy ones, and what must be said."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from batchdp.outcome import Outcome

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]

INTERVALS = (
    "Standard errors and intervals belong to the noisy answers, not to the consistent ones. These are often closer to "
    "what is counted, not always, and are not unbiased: near-empty cells go up, and what is large goes down for them."
)
APART = "Where a batch is measured in blocks, answers of different blocks are fitted apart and need not agree."
WORTH_SAYING = 1e-6
"""Of the records that were moved to make tables agree: less is what averages of nearly equal margins leave."""
UNKEPT_SHOWN = 5


@dataclass(frozen=True)
class Rounding:
    """What whole numbers cost.

    Args:
        largest_move: the most that an answer moved.
        unkept: margins on which tables no longer agree, each with the largest difference; the worst first.
        moved_totals: how many answers moved by 1 or more.
    """

    largest_move: float
    moved_totals: int
    unkept: tuple[tuple[str, float], ...] = ()

    @property
    def adds_up(self) -> bool:
        """Whether all tables still agree."""
        return not self.unkept

    def with_moves(self, moves: Iterable[Any]) -> Rounding:
        """The same where these answers moved too."""
        found = self
        for own in moves:
            more = int((own >= 1).sum())
            found = replace(
                found,
                largest_move=max(found.largest_move, float(own.max(initial=0.0))),
                moved_totals=found.moved_totals + more,
            )
        return found

    def __str__(self) -> str:
        text = f"Whole numbers: no answer moved by more than {self.largest_move:.3g}"
        text += f", {self.moved_totals:,} by 1 or more; " if self.moved_totals else "; "
        if self.adds_up:
            return text + "everything still adds up."
        named = ", ".join(f"{name} (by up to {difference:g})" for name, difference in self.unkept[:UNKEPT_SHOWN])
        more = f" and {len(self.unkept) - UNKEPT_SHOWN:,} more" if len(self.unkept) > UNKEPT_SHOWN else ""
        return text + f"the total and every column's margin add up, these shared margins no longer do: {named}{more}."


def notes(status: Outcome, rounding: Rounding | None, lifted: float = 0.0, *, apart: bool = False) -> tuple[str, ...]:
    """Sentences for files, pages and the terminal; `apart` where there may be blocks."""
    found = [INTERVALS, *([APART] if apart else [])]
    if status is Outcome.CANCELLED:
        found.append("The search was stopped: the best so far agrees and is not negative, yet is not the closest.")
    elif status in (Outcome.OUT_OF_ROUNDS, Outcome.OUT_OF_TIME, Outcome.STALLED):
        found.append(
            f"The search ended early ({status}): the answers agree and are not negative, yet may not be the closest."
        )
    if lifted >= WORTH_SAYING:
        found.append(
            f"To make tables agree, {lifted:.2g} of the records were spread as every column's margin is: the total "
            "and, nearly, margins of one column are those of a search that ended; larger tables may be worse."
        )
    if rounding is not None:
        found.append(str(rounding))
    return tuple(found)


def beside(frame: pd.DataFrame, values: Any) -> pd.DataFrame:
    """A table with consistent values, and the noisy ones as "raw"; without intervals, which are not theirs."""
    groups = frame.iloc[:, :-4].copy()
    raw = unused("raw", groups.columns)
    groups["value"] = values
    groups[raw] = frame["value"].to_numpy()
    return groups


def unused(heading: str, taken: Iterable[str]) -> str:
    """The heading, with a "_" more where a column has it already."""
    known = set(taken)
    while heading in known:
        heading += "_"
    return heading
