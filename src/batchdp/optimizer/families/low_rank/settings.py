"""The constants of the low-rank family.

"Tuned" marks what `benchmarks/tuning.py` tries other values of; the rest are guards and limits of the machine.
"""

from __future__ import annotations

from dataclasses import dataclass

from batchdp.strategies.account import FLOPS


@dataclass(frozen=True)
class Schedule:
    """What the paper's algorithms as printed leave open, and where they end; counts are of rounds or steps as said."""

    most_rounds: int = 400
    """Rounds of Algorithm 1 after which it ends, converged or not: β doubles every tenth, from 1 to about 10¹²."""
    alternations: int = 5
    """Alternations between B and L in one round at the most; chosen by hand."""
    steps: int = 10
    """Steps of Algorithm 2 in one alternation: it begins where the last one ended, so that few do."""
    decrease: float = 1e-2
    """The relative decrease of J below which a round's alternations have converged (line 4 of Algorithm 1)."""
    largest_penalty: float = 1e10
    """The β at which Algorithm 1 ends; the ridge in Equation (9) is then 1e-10 beside the rest."""
    height: float = 10.0
    """The largest entry of a revived row, as a multiple of 1/r: a short row dies again and again."""
    close_enough: float = 3e-6
    """The relative residual at which the exact problem (γ = 0) is handed to the repair, which then moves little."""


@dataclass(frozen=True)
class Settings:
    """What the augmented Lagrangian and the search over ranks go by."""

    penalties: tuple[float, float] = (0.03, 0.3)
    """First β of the registered function, as multiples of r: the low one is nearly always better, the other quicker."""
    slow: float = 1.1
    """Growth of β whenever the residual stops shrinking; tuned."""
    slower: float = 1.06
    """The same for those who have time: better, and slower."""
    steps: int = 10
    """Projected gradient steps a round; tuned."""
    max_rounds: int = 250
    """Rounds after which a run ends, converged or not."""
    close_enough: float = 1e-5
    """The relative residual at which the exact problem (γ = 0) is handed to the repair."""
    largest_penalty: float = 1e7
    """The β at which a run ends: the residual no longer shrinks, or L has lost rank."""
    height: float = 30.0
    """The largest entry of a revived row, as a multiple of 1/r: a short row dies again and again."""
    reviving: float = 0.7
    """The share of `max_rounds` up to which dead rows are revived; later ones could not settle."""
    small: int = 16_384
    """Entries of L up to which single precision saves nothing."""
    rough: float = 1e-3
    """The relative residual down to which single precision serves."""
    as_printed: Schedule = Schedule()
    """What `algorithm="paper"` goes by, which no search uses."""

    few_columns: float = 0.1
    """Multiple of k² columns below which low rank is several times worse than noise on data; above 0.7 it usually
    wins."""
    quick: int = 50_000
    """Entries of R up to which it is tried from half as many columns, because it costs little there."""
    tiny: int = 400
    """Entries of R up to which every rank is tried with several seeds."""
    small_problem: int = 4000
    """Entries of R up to which the registered function is run even where it can hardly win."""
    most_cells: int = 64
    """Cells up to which the same holds for the largest error."""
    hopeless: float = 1.3
    """Multiple of the best ‖B‖²_F so far above which a run is given up."""

    working_columns: float = 2.0
    """Columns in the first working set, as a multiple of the r k entries of B."""
    few: int = 2048
    """Columns up to which all of them are taken at once."""
    working_rounds: int = 8
    """Working sets that are tried at the most."""
    firm: float = 3.0
    """β of a warm start as a multiple of r; times 2 each round, so that less and less moves."""
    nearly: float = 0.99
    """The norm from which a column's measurements bring it into the working set."""
    agreed: float = 1e-3
    """The relative difference between the errors on all columns and on the working set that ends the search."""

    part: float = 0.7
    """Of the work that is left, beside p-Identity's 0.3; tuned."""
    base_seconds: float = 0.3
    """Nominal seconds for every problem where it may win and the caller sets no time."""
    seconds_per_entry: float = 2e-4
    """Nominal seconds for every entry of R on top, up to `most_seconds`."""
    most_seconds: float = 20.0
    """Nominal seconds beyond which that no longer grows; chosen by hand."""
    round_seconds: float = 3e-4
    """Nominal seconds of one ridge regression whatever its size. Measured, as the next two are."""
    variable_seconds: float = 3e-8
    """Nominal seconds for every entry of L: projection and gradient steps."""
    evaluations: float = 0.9
    """Regressions a step in double precision: 1.2 are made, half of them in single precision."""
    singles_round_seconds: float = 2e-4
    """Nominal seconds of a regression, whatever its size, in the form that also measures single columns."""
    singles_entry_seconds: float = 1.2e-9
    """Nominal seconds for every entry of R in such a regression."""
    singles_variable_seconds: float = 8e-8
    """Nominal seconds for every entry of the shared measurements in such a regression."""

    def price(self, k: int, n: float, r: int) -> float:
        """One round of the augmented Lagrangian."""
        return self.evaluations * self.steps * self.regression_price(k, int(n), r)

    def regression_price(self, k: int, n: int, r: int) -> float:
        """One ridge regression with its projection."""
        products = (2.0 * r * r * n + 6.0 * r * k * n + r**3) / FLOPS
        return self.round_seconds + products + self.variable_seconds * r * n

    def singles_price(self, k: int, n: int, r: int) -> float:
        """One round of the form with r shared measurements and those of single columns."""
        products = 4.0 * r * (k * n + r * (k + n)) / FLOPS
        passes = self.singles_entry_seconds * k * n + self.singles_variable_seconds * n * r
        return 1.5 * self.steps * (self.singles_round_seconds + products + passes)

    def nominal_seconds(self, entries: int) -> float:
        """What a search of a problem with so many entries of R asks for."""
        return min(self.base_seconds + self.seconds_per_entry * entries, self.most_seconds)


SETTINGS = Settings()
