"""The constants of the p-Identity family.

"Tuned" marks what `benchmarks/tuning.py` tries other values of; the rest are guards and limits of the machine.
"""

from __future__ import annotations

from dataclasses import dataclass

from batchdp.strategies.account import FLOPS


@dataclass(frozen=True)
class Settings:
    """What a search for shared queries goes by; counts are of shared queries, runs or rounds as said."""

    screening_rounds: int = 60
    """Rounds of the registered function's first look at a start: enough to tell a good p from a bad one; tuned."""
    start_sum: float = 8.0
    """Twice the sum of a column of a start with many rows: no strategy that was seen shares more of its budget."""
    most_shared: int = 64
    """Shared queries that the registered function begins with at the most, as HDMM's p ≤ n / 16 on 1 024 cells."""
    polished: int = 2
    """Screened starts that the registered function runs to the end; tuned."""
    most_variables: int = 1_000_000
    """Entries of Θ: with more a search takes minutes, on columns so many that low rank does better anyway."""

    memory: int = 8
    """Past steps that the quasi-Newton method learns the curvature from; the usual 5 to 10 of L-BFGS, not tuned."""
    smallest_diagonal: float = 1e-4
    """The least entry of the diagonal d while it is free, of a column's budget of 1: the error is a difference of
    terms that grow with 1/d, and at 1e-4 they still agree to half the digits."""
    least_gain: float = 1e-4
    """The relative gain of the error, as its gradient predicts it, below which freeing every entry of L is not worth
    its O(n³) a round; chosen by hand."""
    sparse_columns: int = 2048
    """Merged columns above which the measure L is a sparse matrix: a dense diagonal would take 32 megabytes."""
    differing_entries: int = 1_000_000
    """Entries of R from which the workload is tried as differences of neighbouring columns; a round on fewer takes
    milliseconds either way."""
    sparse_cost: int = 30
    """Multiplications of dense matrices that take the time of one of a sparse matrix; on ranges, 18 to 38 were
    measured."""
    children: int = 4
    """Children of a node in the two-level tree that a start may be: groups of columns, and groups of such groups;
    chosen by hand."""

    most_shared_at_start: int = 48
    """Shared queries that a start of the tournament has at the most; splitting leads to more. Tuned."""
    few_shared: int = 8
    """The same where runs of different p end alike, so that the number hardly matters."""
    survivors: int = 8
    """Starts that are run on after the screening; tuned."""
    fewest_rounds: int = 10
    """Rounds that a run of the tournament has at least: fewer show nothing."""
    most_rounds: int = 300
    """Rounds that a run of the tournament has at the most: more gain nothing to speak of; chosen by hand."""
    finalists: int = 3
    """Runs that are polished; tuned."""
    alike: int = 2
    """Runs that have to end like the best one for it to count as the only valley."""
    many_shared: int = 32
    """Shared queries of the best start from which splitting them is tried, because more may pay."""
    growth_rounds: int = 100
    """Rounds after every splitting."""
    growing: int = 2
    """Runs that are split again, out of those that splitting improved."""
    hop_rounds: int = 50
    """Rounds after a change by hand; tuned."""
    hops_at_once: int = 4
    """Changes by hand that are tried side by side."""
    useless_hops: int = 24
    """Changes by hand in a row that may lead nowhere before hopping ends; tuned."""

    part: float = 0.3
    """Of the work that is left, where low rank (0.7) may win as well; tuned."""
    base_seconds: float = 0.55
    """Nominal seconds for every problem, where the caller sets no time."""
    seconds_per_entry: float = 1.4e-5
    """Nominal seconds for every entry of R, up to `most_early_seconds`: what small problems profit from."""
    most_early_seconds: float = 2.0
    """Nominal seconds beyond which the early ones no longer grow; chosen by hand."""
    late_seconds_per_entry: float = 1e-5
    """Nominal seconds for every entry of R on top, up to `most_late_seconds`: what large problems need."""
    most_late_seconds: float = 55.0
    """Nominal seconds beyond which the late ones no longer grow; chosen by hand: with the others, about a minute."""

    round_seconds: float = 2e-4
    """Nominal seconds of a round whatever its size: the calls themselves. Measured, as the next four are."""
    entry_seconds: float = 1.2e-9
    """Nominal seconds for every entry of R and round, beside the products."""
    variable_seconds: float = 8e-8
    """Nominal seconds for every entry of Θ and round: the passes of the quasi-Newton method."""
    dense_round_seconds: float = 3e-4
    """Nominal seconds of a round with every entry of L free, whatever its size."""
    dense_variable_seconds: float = 4e-8
    """Nominal seconds for every entry of L in such a round."""

    def price(self, k: int, n: int, p: int, work: int) -> float:
        """One round with p shared queries: two products with R, p × p systems, passes over p n numbers.

        `work` is how many entries a dense matrix has that is as dear as R.
        """
        products = 4.0 * p * (work + p * (k + n)) / FLOPS
        return self.round_seconds + products + self.entry_seconds * work + self.variable_seconds * n * p

    def dense_price(self, k: int, n: int, r: int) -> float:
        """One evaluation with all r × n entries free: Gram matrix, Cholesky, solve, two products."""
        products = (r * n * n + n**3 / 3 + 2.0 * n * n * k + 4.0 * r * n * k) / FLOPS
        return self.dense_round_seconds + products + self.dense_variable_seconds * r * n

    def nominal_seconds(self, entries: int) -> float:
        """What a search of a problem with so many entries of R asks for."""
        early = min(self.seconds_per_entry * entries, self.most_early_seconds)
        return self.base_seconds + early + min(self.late_seconds_per_entry * entries, self.most_late_seconds)


SETTINGS = Settings()
