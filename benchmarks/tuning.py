"""The settings of every family and its cost model, tried and fitted again; tuned and fresh seeds side by side.

    python benchmarks/tuning.py [--quick] [--only p-identity.survivors] [--prices]

Settings: each of the values that its docstring calls tuned is halved and doubled, one at a time, and `optimize` runs
on contract workloads with seeds of its own (TUNED). What gains there is only worth anything if it gains on seeds that
took no part in the choice (FRESH) as well; no published table uses either. Prices: the measured time of a round at
several sizes, fitted by least squares to the terms of the family's own price, beside what its settings say.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.optimize import nnls

from batchdp import optimize
from batchdp.linalg.threads import one_thread
from batchdp.optimizer.families import FAMILIES, Family, register
from batchdp.optimizer.families.low_rank import fast
from batchdp.optimizer.families.low_rank.fast import first_measure
from batchdp.optimizer.families.p_identity.mechanism import fit
from batchdp.optimizer.families.p_identity.problem import polish_dense, whole
from batchdp.strategies.account import FLOPS
from contract import contract_workload

TUNED = (201, 202, 203)
FRESH = (301, 302, 303)
CASES = [("WDiscrete", 64, 256, 0), ("WRange", 64, 256, 0), ("WRelated", 64, 256, 32), ("Prefix", 128, 128, 0)]
QUICK_CASES = [("WRange", 16, 32, 0), ("WRelated", 16, 64, 4)]
SETTINGS = {
    "p-identity": (
        "screening_rounds",
        "polished",
        "most_shared_at_start",
        "survivors",
        "finalists",
        "hop_rounds",
        "useless_hops",
    ),
    "low-rank": ("slow", "steps"),
    "parts": ("p-identity",),
}
"""What is tried, by family; "parts" are the families' parts of the work."""


@dataclass(frozen=True)
class Trial:
    """A family with one setting changed."""

    name: str
    value: str
    family: Family


def trials() -> Iterator[Trial]:
    """Every tuned setting, halved and doubled."""
    for name, settings in SETTINGS.items():
        if name == "parts":
            for other in settings:
                family = FAMILIES[other]
                for part in (0.5 * family.settings.part, 2.0 * family.settings.part):
                    changed_settings = replace(family.settings, part=part)
                    yield Trial(f"{other}.part", f"{part:g}", replace(family, settings=changed_settings))
            continue
        family = FAMILIES[name]
        for setting in settings:
            current = getattr(family.settings, setting)
            for changed in neighbours(current):
                changed_settings = replace(family.settings, **{setting: changed})
                yield Trial(f"{name}.{setting}", f"{changed:g}", replace(family, settings=changed_settings))


def neighbours(value: float) -> tuple[float, float]:
    """Half and twice as much; of a growth factor, half and twice the growth."""
    if isinstance(value, int):
        return max(1, value // 2), 2 * value
    return (1 + (value - 1) / 2, 1 + 2 * (value - 1)) if 1 < value < 2 else (value / 2, 2 * value)


@contextmanager
def registered(family: Family) -> Iterator[None]:
    """The family in place of the one of its name."""
    before = FAMILIES[family.name]
    register(family)
    try:
        yield
    finally:
        register(before)


@dataclass(frozen=True)
class Score:
    """Relative to the settings as they are: geometric means over workloads and seeds."""

    error: float
    seconds: float


Measured = dict[tuple[tuple[str, int, int, int], int], tuple[float, float]]


def measured(cases: Sequence[tuple[str, int, int, int]], seeds: Sequence[int], seconds: float | None) -> Measured:
    """Error and processor time of `optimize` on every workload with every seed."""
    found: Measured = {}
    for case in cases:
        for seed in seeds:
            workload = contract_workload(*case, seed=seed)
            start = time.process_time()
            strategy = optimize(workload, seed=seed, seconds=seconds)
            found[case, seed] = strategy.expected_squared_error(epsilon=1.0), time.process_time() - start
    return found


def score(found: Measured, base: Measured) -> Score:
    """Both figures as ratios."""
    ratios = np.log([np.divide(found[key], base[key]) for key in base])
    return Score(*np.exp(ratios.mean(axis=0)))


def try_settings(console: Console, *, quick: bool, only: str) -> None:
    """The table of settings: below 1 is better than what stands in the code."""
    cases, seconds = (QUICK_CASES, 0.5) if quick else (CASES, None)
    tuned, fresh = (TUNED[:1], FRESH[:1]) if quick else (TUNED, FRESH)
    base = measured(cases, tuned, seconds), measured(cases, fresh, seconds)
    table = Table("setting", "value", "error, tuned seeds", "error, fresh seeds", "time, tuned", "time, fresh", "")
    for trial in trials():
        if only not in trial.name:
            continue
        with registered(trial.family):
            on_tuned, on_fresh = (
                score(measured(cases, seeds, seconds), known) for seeds, known in zip((tuned, fresh), base, strict=True)
            )
        holds = on_tuned.error < 0.999 and on_fresh.error < 0.999
        table.add_row(
            trial.name,
            trial.value,
            f"{on_tuned.error:.4f}",
            f"{on_fresh.error:.4f}",
            f"{on_tuned.seconds:.2f}",
            f"{on_fresh.seconds:.2f}",
            "better on both" if holds else "",
        )
    console.print(table)


# ── the cost model ──

Sizes = tuple[int, int, int]


def best_of(run: Callable[[], Any], times: int = 3) -> float:
    """Processor seconds of the quickest run."""
    seconds = []
    for _ in range(times):
        start = time.process_time()
        run()
        seconds.append(time.process_time() - start)
    return min(seconds)


def shared_round(k: int, n: int, p: int) -> float:
    """One evaluation of p-Identity, with its share of the quasi-Newton steps."""
    rng = np.random.default_rng(0)
    R, T = whole(rng.standard_normal((k, n))), rng.random((p, n))
    evaluations = fit(R, T, 10).evaluations
    return best_of(lambda: fit(R, T, 10)) / evaluations


def dense_round(k: int, n: int, r: int) -> float:
    """One evaluation with every entry of L free."""
    rng = np.random.default_rng(0)
    R, L = rng.standard_normal((k, n)), np.vstack([np.eye(n), rng.random((r - n, n))]) / r
    reached = polish_dense(R, L, 5)
    return best_of(lambda: polish_dense(R, L, 5)) / reached.evaluations


def regression(k: int, n: int, r: int) -> float:
    """One gradient step of low rank, with its projection."""
    R = np.random.default_rng(0).standard_normal((k, n))
    start = first_measure(R, r, np.random.default_rng(0))
    settings = replace(FAMILIES["low-rank"].settings, max_rounds=3, small=10**9)
    rules = fast.Rules(0.03 * r, settings=settings)
    return best_of(lambda: fast.solve(R, start, rules)) / float(3 * 1.2 * settings.steps)


def terms_shared(k: int, n: int, p: int) -> tuple[float, list[float]]:
    """Floating-point operations, and what the other coefficients are multiplied with."""
    return 4.0 * p * (k * n + p * (k + n)), [1.0, k * n, n * p]


def terms_dense(k: int, n: int, r: int) -> tuple[float, list[float]]:
    """The same, with every entry free."""
    return r * n * n + n**3 / 3 + 2.0 * n * n * k + 4.0 * r * n * k, [1.0, r * n]


def terms_regression(k: int, n: int, r: int) -> tuple[float, list[float]]:
    """The same, of low rank."""
    return 2.0 * r * r * n + 6.0 * r * k * n + r**3, [1.0, r * n]


PRICES = (
    ("p-identity", ("round_seconds", "entry_seconds", "variable_seconds"), shared_round, terms_shared),
    ("p-identity", ("dense_round_seconds", "dense_variable_seconds"), dense_round, terms_dense),
    ("low-rank", ("round_seconds", "variable_seconds"), regression, terms_regression),
)


def sizes(name: str, *, quick: bool) -> list[Sizes]:
    """Rows, columns and measurements, from small to large."""
    ns = (64, 128) if quick else (64, 128, 256, 512)
    if name == "terms_dense":
        return [(k, n, n + p) for n in ns for k in (n // 4, n // 2) for p in (4, 16)]
    return [(k, n, p) for n in ns for k in (n // 8, n // 2) for p in (max(2, k // 4), k)]


@one_thread
def fit_prices(console: Console, *, quick: bool) -> None:
    """The table of prices."""
    table = Table("family", "price", "in the settings", "fitted here", "operations a second here")
    for family, names, run, terms in PRICES:
        points = sizes(terms.__name__, quick=quick)
        seconds = np.array([run(*point) for point in points])
        rows = np.array([[operations, *others] for operations, others in (terms(*point) for point in points)])
        # Small rounds are to count as much as large ones: relative errors.
        weights = rows / seconds[:, None]
        scale = np.linalg.norm(weights, axis=0)
        found = nnls(weights / scale, np.ones(len(seconds)))[0] / scale
        settings = FAMILIES[family].settings
        speed = f"{1 / found[0]:.2g} (model {FLOPS:.2g})" if found[0] > 0 else "too fast to tell"
        for name, value in zip(names, found[1:], strict=True):
            table.add_row(family, name, f"{getattr(settings, name):.2g}", f"{value:.2g}", speed)
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small workloads, one seed of each kind: a minute")
    parser.add_argument("--only", default="", help="settings whose name holds this")
    parser.add_argument("--prices", action="store_true", help="the cost model alone")
    options = parser.parse_args()
    for family, names in SETTINGS.items():
        known = FAMILIES if family == "parts" else {field.name for field in fields(FAMILIES[family].settings)}
        assert set(names) <= set(known), f"{family} has other settings now"
    console = Console(width=140)
    fit_prices(console, quick=options.quick)
    if not options.prices:
        try_settings(console, quick=options.quick, only=options.only)


if __name__ == "__main__":
    main()
