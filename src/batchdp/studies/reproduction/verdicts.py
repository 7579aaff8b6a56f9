"""Judges of the paper's claims: each takes the findings alone and returns a verdict with the figures behind it.

What is not there is "not measured", and so is a claim about a size that the run does not reach. Where the paper speaks
of LRM, the better of the two algorithms for its program counts: a claim shall not fail for our solver.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import log2

import numpy as np

from batchdp.studies.reproduction.findings import RIVALS, Curve, Findings, best, short, span, varied
from batchdp.studies.reproduction.points import BASELINES, WORKLOADS

HOLDS, IN_PART, FAILS, UNKNOWN = "holds", "holds in part", "does not hold", "not measured"
ORDERS = 100.0
"""Two orders of magnitude."""
FAR = 10.0
"""How many times larger an error is that is "far worse"."""
CLEARLY = 2.0
"""How many times smaller an error is that is "significantly" smaller."""
STEADY = 1.25
"""The largest ratio of errors that counts as the same error."""
LINEAR = (0.8, 1.2)
"""The exponents that count as linear."""


@dataclass(frozen=True)
class Judgement:
    """A verdict, and the figures that it rests on."""

    verdict: str
    measured: str = ""


def judged(conditions: Iterable[bool], measured: str, otherwise: str = "") -> Judgement:
    """Holds if every condition does, in part if some do; without any it is not measured, and `otherwise` says why."""
    found = list(conditions)
    if not found:
        return Judgement(UNKNOWN, otherwise)
    return Judgement(HOLDS if all(found) else IN_PART if any(found) else FAILS, measured)


# ── Section 1: the examples ──


def first_example_is_better(findings: Findings) -> Judgement:
    """The strategy of the introduction against both kinds of plain noise."""
    found = [one for one in findings.examples if one.name == "example 1"]
    text = "; ".join(
        f"{short(one.printed)} against {short(one.noise_on_results)} and {short(one.noise_on_data)}; least found: "
        f"{short(one.reached)}; no factorisation is below {short(one.bound)}"
        for one in found
    )
    return judged([one.printed < min(one.noise_on_results, one.noise_on_data) for one in found], text)


def second_example_is_optimal(findings: Findings) -> Judgement:
    """Is anything below what the introduction calls optimal?"""
    found = [one for one in findings.examples if one.name == "example 2"]
    text = "; ".join(
        f"least found: {short(one.reached)}; no factorisation is below {short(one.bound)}" for one in found
    )
    return judged([one.reached >= one.printed * (1 - 1e-3) for one in found], text)


# ── Section 6.1: γ and r ──


def insensitive_to_relaxation(findings: Findings) -> Judgement:
    """Figure 2: the error at every γ against that at the smallest, per workload and ε."""
    conditions, ratios, noise = [], list[float](), list[float]()
    steady: dict[float, float] = {}
    for epsilon in sorted({row.epsilon for row in findings.rows}):
        for workload in WORKLOADS:
            rows = {row.gamma: row for row in findings.of("figure-2", "LRM", workload=workload, epsilon=epsilon)}
            if len(rows) < 2:
                continue
            first, *others = (rows[gamma] for gamma in sorted(rows))
            same = [max(row.error / first.error, first.error / row.error) <= CLEARLY for row in others]
            conditions += same
            until = next((i for i, kept in enumerate(same) if not kept), len(same))
            steady[epsilon] = min([first, *others][until].gamma, steady.get(epsilon, np.inf))
            ratios.append(max(row.error for row in rows.values()) / min(row.error for row in rows.values()))
            noise.append(max(row.noise for row in rows.values()) / min(row.noise for row in rows.values()))
    if not conditions:
        return Judgement(UNKNOWN)
    limits = ", ".join(f"γ = {gamma:g} at ε = {epsilon:g}" for epsilon, gamma in steady.items())
    return judged(
        conditions,
        f"within a factor of {CLEARLY:g} on all workloads up to {limits}; over all γ, largest over smallest error: "
        f"{span(ratios)}; of the noise's part alone: {span(noise)}",
    )


def faster_with_relaxation(findings: Findings) -> Judgement:
    """Figure 2: time at the largest γ against the smallest."""
    gains = {}
    for workload in WORKLOADS:
        times = {row.gamma: row.seconds for row in findings.of("figure-2", "LRM", workload=workload)}
        if len(times) > 1:
            gains[workload] = times[min(times)] / times[max(times)]
    text = f"time at the smallest γ over that at the largest: {_listed(gains)}"
    return judged([gain >= CLEARLY for gain in gains.values()], text)


def quadratic_in_budget(findings: Findings) -> Judgement:
    """Figures 2 and 3: error · ε² is the same for all ε."""
    groups: dict[tuple[str, str, float, float], list[float]] = {}
    for row in findings.rows:
        if row.figure in ("figure-2", "figure-3") and row.mechanism == "LRM":
            key = (row.figure, row.workload, row.gamma, row.ratio)
            groups.setdefault(key, []).append(row.error * row.epsilon**2)
    spreads: dict[str, list[float]] = {"B L = W": [], "B L only near W": []}
    for (_, _, gamma, ratio), scaled in groups.items():
        if len(scaled) > 1:
            exact = gamma == 0 and ratio >= 1
            spreads["B L = W" if exact else "B L only near W"].append(max(scaled) / min(scaled))
    texts = [f"{name}: error · ε² differs by a factor of {span(values)}" for name, values in spreads.items() if values]
    return judged([value < 1.01 for values in spreads.values() for value in values], "; ".join(texts))


def poor_below_the_rank(findings: Findings) -> Judgement:
    """Figure 3: r < rank(W) against r = 1.2 rank(W), per workload and ε."""
    ratios: dict[str, dict[float, float]] = {}
    for workload in WORKLOADS:
        for epsilon in sorted({row.epsilon for row in findings.rows}):
            rows = {row.ratio: row for row in findings.of("figure-3", "LRM", workload=workload, epsilon=epsilon)}
            if rows and min(rows) < 1 and 1.2 in rows:
                ratios.setdefault(workload, {})[epsilon] = rows[min(rows)].error / rows[1.2].error
    listed = "; ".join(f"{workload} {_by('ε', of_workload)}" for workload, of_workload in ratios.items())
    text = f"error at the smallest r over that at 1.2 rank(W): {listed}"
    return judged([ratio >= FAR for of_workload in ratios.values() for ratio in of_workload.values()], text)


def stable_above_the_rank(findings: Findings) -> Judgement:
    """Figure 3: errors for r ≥ 1.2 rank(W)."""
    ratios = {}
    for workload in WORKLOADS:
        rows = findings.of("figure-3", "LRM", workload=workload, epsilon=0.1)
        errors = [row.error for row in rows if row.ratio >= 1.2]
        if len(errors) > 1:
            ratios[workload] = max(errors) / min(errors)
    return judged([ratio <= STEADY for ratio in ratios.values()], f"largest over smallest error: {_listed(ratios)}")


def exponential_time(findings: Findings) -> Judgement:
    """Figure 3: does the time grow, and does its logarithm follow r better than log(r)?"""
    fits, texts = [], []
    for workload in WORKLOADS:
        rows = findings.of("figure-3", "LRM", workload=workload)
        times = {row.ratio: row.seconds for row in rows if row.ratio >= 1}
        if len(times) < 4:
            continue
        ratio, seconds = np.array(sorted(times)), np.log([times[value] for value in sorted(times)])
        growth = float(np.exp(seconds[-1] - seconds[0]))
        fits.append(growth > CLEARLY and _misfit(ratio, seconds) < _misfit(np.log(ratio), seconds))
        power = f", like r^{_slope(times):.1f}" if growth > CLEARLY else ""
        texts.append(f"{workload} {short(growth)} times{power}")
    return judged(fits, f"time from r = rank(W) to the largest r: {'; '.join(texts)}")


# ── Section 6.2: n ──


def matrix_mechanism_is_worst(findings: Findings) -> Judgement:
    """Figures 4 to 6: MM against all others of the paper."""
    conditions, texts = [], []
    for workload, figure in zip(WORKLOADS, ("figure-4", "figure-5", "figure-6"), strict=True):
        plain = [findings.curve(figure, name) for name in BASELINES]
        low_rank = findings.low_rank(figure)
        ratios = {
            n: error / max(low_rank.get(n, 0.0), *(curve[n] for curve in plain))
            for n, error in findings.curve(figure, "MM").items()
            if all(n in curve for curve in plain)
        }
        conditions += [ratio > 1 for ratio in ratios.values()]
        if ratios:
            texts.append(f"{workload} {span(ratios.values())} (n up to {max(ratios):g})")
    return judged(conditions, f"MM over the worst of the others: {', '.join(texts)}")


def matrix_mechanism_never_beats_noise_on_data(findings: Findings) -> Judgement:
    """Figures 4 to 6: MM against LM."""
    ratios = [
        error / plain[n]
        for figure in ("figure-4", "figure-5", "figure-6")
        if (plain := findings.curve(figure, "LM"))
        for n, error in findings.curve(figure, "MM").items()
        if n in plain
    ]
    return judged([ratio > 1 for ratio in ratios], f"MM over LM: {span(ratios)}" if ratios else "")


def noise_on_data_wins_small(findings: Findings) -> Judgement:
    """Figure 4, n ≤ m: LM against each of the others."""
    conditions, texts = [], []
    low_rank = findings.low_rank("figure-4")
    for row in sorted(findings.of("figure-4", "LM"), key=lambda row: row.n):
        if row.n <= row.m and row.n in low_rank:
            others = {name: findings.curve("figure-4", name).get(row.n) for name in ("WM", "HM", "MM")}
            compared = {**{name: error for name, error in others.items() if error is not None}, "LRM": low_rank[row.n]}
            conditions += [row.error <= error for error in compared.values()]
            texts.append(f"n = {row.n}: LM {short(row.error)}, {_listed(compared)}")
    return judged(conditions, "; ".join(texts))


def others_linear_in_cells(findings: Findings) -> Judgement:
    """Figure 4: the exponents of the errors of all but LRM."""
    curves = {name: findings.curve("figure-4", name) for name in RIVALS}
    slopes = {name: _slope(curve) for name, curve in curves.items() if len(curve) > 2}
    text = "error like n to the power of " + ", ".join(f"{slope:.2f} ({name})" for name, slope in slopes.items())
    return judged([LINEAR[0] <= slope <= LINEAR[1] for slope in slopes.values()], text)


def low_rank_stops_growing(findings: Findings) -> Judgement:
    """Figure 4, n ≥ 2 m: growth of LRM when n doubles, and of others beside it."""
    first = min((2 * row.m for row in findings.of("figure-4", "LM")), default=0)
    texts, flat = [], []
    for name, curve in (
        ("LRM", findings.low_rank("figure-4")),
        ("optimize", findings.curve("figure-4", "optimize")),
        ("LM", findings.curve("figure-4", "LM")),
        ("bound", findings.curve("figure-4", "bound")),
    ):
        steps = [(n, error) for n, error in sorted(curve.items()) if n >= first]
        growth = [float((b[1] / a[1]) ** (1 / log2(b[0] / a[0]))) for a, b in pairwise(steps)]
        if growth:
            texts.append(f"{name} {span(growth)} (n = {steps[0][0]:g} to {steps[-1][0]:g})")
        if name == "LRM":
            flat = [step <= 1.1 for step in growth]
    return judged(flat, "growth when n doubles: " + ", ".join(texts))


def synopses_win_on_ranges(findings: Findings) -> Judgement:
    """Figure 5, n ≥ 512: WM and HM against LM. What counts is n itself, not n / m, so there is no smaller version."""
    conditions, texts = [], []
    for row in sorted(findings.of("figure-5", "LM"), key=lambda row: row.n):
        found = {name: findings.curve("figure-5", name).get(row.n) for name in ("WM", "HM")}
        known = {name: error for name, error in found.items() if error is not None}
        if row.n >= 512:
            conditions += [error < row.error for error in known.values()]
            texts.append(f"n = {row.n}: LM {short(row.error)}, {_listed(known)}")
    return judged(conditions, "; ".join(texts), _end_of(findings, "figure-5"))


def low_rank_wins_on_ranges(findings: Findings) -> Judgement:
    """Figure 5: LRM at least twice as good as any rival."""
    gaps = _gaps(findings, "figure-5")
    return judged([gap >= CLEARLY for gap in gaps.values()], f"best rival over LRM: {_by('n', gaps)}")


def low_rank_wins_on_related(findings: Findings) -> Judgement:
    """Figure 6: LRM below every rival."""
    gaps = _gaps(findings, "figure-6")
    return judged([gap > 1 for gap in gaps.values()], f"best rival over LRM: {_by('n', gaps)}")


def two_orders_on_related(findings: Findings) -> Judgement:
    """Figure 6 at n = 8192."""
    known = findings.rivals("figure-6")
    if 8192 not in known:
        return Judgement(UNKNOWN, _end_of(findings, "figure-6"))
    return _two_orders(findings, "figure-6", 8192)


# ── Sections 6.3 and 6.4: m and s ──


def low_rank_wins_with_few_queries(findings: Findings) -> Judgement:
    """Figure 7: m ≤ n / 4."""
    cells = {row.n for row in findings.of("figure-7", "LM")}
    gaps = {m: gap for m, gap in _gaps(findings, "figure-7").items() if cells and m <= max(cells) / 4}
    return judged([gap > 1 for gap in gaps.values()], f"best rival over LRM: {_by('m', gaps)}")


def errors_converge_with_queries(findings: Findings) -> Judgement:
    """Figure 7: the worst mechanism of the paper over the best, at the smallest and the largest m."""
    curves = [findings.low_rank("figure-7"), *(findings.curve("figure-7", name) for name in BASELINES)]
    known = sorted(set(curves[0]).intersection(*curves[1:]))
    if len(known) < 2:
        return Judgement(UNKNOWN)
    spread = {m: max(curve[m] for curve in curves) / min(curve[m] for curve in curves) for m in known}
    text = f"worst over best: {_by('m', spread)}"
    if spread[known[-1]] <= CLEARLY:
        return Judgement(HOLDS, text)
    return Judgement(IN_PART if spread[known[-1]] * STEADY < spread[known[0]] else FAILS, text)


def wavelets_win_with_many_queries(findings: Findings) -> Judgement:
    """Figure 7 at m = 1024: WM against the others."""
    low_rank = findings.low_rank("figure-7")
    errors = {name: findings.curve("figure-7", name).get(1024) for name in BASELINES} | {"LRM": low_rank.get(1024)}
    known = {name: error for name, error in errors.items() if error is not None}
    if not {"LM", "WM", "HM"} <= set(known):
        return Judgement(UNKNOWN, _end_of(findings, "figure-7"))
    least = min(known.values())
    text = f"m = 1024: {_listed(known)}"
    if "LRM" not in known:
        return Judgement(UNKNOWN if known["WM"] == least else FAILS, f"{text}; LRM was not finished")
    if known["WM"] == least:
        return Judgement(HOLDS, text)
    return Judgement(IN_PART if known["WM"] <= STEADY * least else FAILS, text)


def low_rank_wins_for_any_queries(findings: Findings) -> Judgement:
    """Figure 8."""
    gaps = _gaps(findings, "figure-8")
    return judged([gap >= CLEARLY for gap in gaps.values()], f"best rival over LRM: {_by('m', gaps)}")


def linear_in_rank(findings: Findings) -> Judgement:
    """Figure 9: the exponent of LRM's error, and of its ratio to LM's, which is 2 ‖W‖² / (m ε²)."""
    low_rank, plain = findings.low_rank("figure-9"), findings.curve("figure-9", "LM")
    known = sorted(set(low_rank) & set(plain))
    if len(known) < 3:
        return Judgement(UNKNOWN)
    whole, relative = _slope({s: low_rank[s] for s in known}), _slope({s: low_rank[s] / plain[s] for s in known})
    text = f"error like s^{whole:.2f}; error over ‖W‖² like s^{relative:.2f} (s = {known[0]:g} to {known[-1]:g})"
    return judged([LINEAR[0] <= slope <= LINEAR[1] for slope in (whole, relative)], text)


def two_orders_at_low_rank(findings: Findings) -> Judgement:
    """Figure 9 at the smallest s; the paper's has n = 1024, and the gain depends on n."""
    known = findings.rivals("figure-9")
    cells = max((row.n for row in findings.of("figure-9", "LM")), default=0)
    if not known or cells < 1024:
        return Judgement(UNKNOWN, f"this run has n = {cells}" if cells else "")
    return _two_orders(findings, "figure-9", min(known))


def others_stable_in_rank(findings: Findings) -> Judgement:
    """Figure 9: LM, WM and HM over all s."""
    growth = {}
    for name in BASELINES:
        curve = findings.curve("figure-9", name)
        if len(curve) > 1:
            growth[name] = curve[max(curve)] / curve[min(curve)]
    text = f"error at the largest s over that at the smallest: {_listed(growth)}"
    return judged([1 / STEADY <= step <= STEADY for step in growth.values()], text)


def low_rank_grows_with_rank(findings: Findings) -> Judgement:
    """Figure 9: LRM from the smallest s to the largest, against LM."""
    low_rank, plain = findings.low_rank("figure-9"), findings.curve("figure-9", "LM")
    known = sorted(set(low_rank) & set(plain))
    if len(known) < 2:
        return Judgement(UNKNOWN)
    first, last = known[0], known[-1]
    ours, theirs = low_rank[last] / low_rank[first], plain[last] / plain[first]
    return judged(
        [ours > CLEARLY * theirs], f"from s = {first:g} to {last:g}: LRM {short(ours)} times, LM {short(theirs)}"
    )


# ── The whole paper ──


def consistently_better(findings: Findings) -> Judgement:
    """Figures 4 to 9: LRM below every rival."""
    gaps = [gap for number in range(4, 10) for gap in _gaps(findings, f"figure-{number}").values()]
    won = sum(gap > 1 for gap in gaps)
    text = f"LRM has the least error of the paper's mechanisms at {won} of {len(gaps)} points"
    return judged([gap > 1 for gap in gaps], text)


def _two_orders(findings: Findings, figure: str, at: float) -> Judgement:
    """How far LRM is below the others at one point, and how far anything could be.

    In part: two orders below the worst of the others, and below the best of them.
    """
    rival, bound, low_rank = (
        curve.get(at) for curve in (findings.rivals(figure), findings.curve(figure, "bound"), findings.low_rank(figure))
    )
    if rival is None:
        return Judgement(UNKNOWN)
    texts, impossible = [f"at {varied(figure)} = {at:g}"], False
    if bound is not None:
        impossible = rival / bound < ORDERS
        texts.append(f"no factorisation at all can be more than {short(rival / bound)} times below the best rival")
    if low_rank is None:
        return Judgement(FAILS if impossible else UNKNOWN, ", ".join(texts) + "; LRM itself was not finished")
    worst = max(findings.curve(figure, name).get(at, 0.0) for name in RIVALS)
    texts.append(f"best rival over LRM {short(rival / low_rank)}, worst rival over LRM {short(worst / low_rank)}")
    conditions = [worst / low_rank >= ORDERS and rival > low_rank, rival / low_rank >= ORDERS]
    return judged(conditions, ", ".join(texts))


def _gaps(findings: Findings, figure: str) -> Curve:
    """The best rival's error over LRM's, by the value that is varied."""
    low_rank, rivals = findings.low_rank(figure), findings.rivals(figure)
    return {value: rivals[value] / low_rank[value] for value in sorted(set(low_rank) & set(rivals))}


def _end_of(findings: Findings, figure: str) -> str:
    """Why a claim about a large size is not judged."""
    known = best(findings.curve(figure, name) for name in RIVALS)
    return f"this run ends at {varied(figure)} = {max(known):g}" if known else ""


def _slope(curve: Curve) -> float:
    """The exponent of the power that fits best."""
    at = sorted(curve)
    return float(np.polyfit(np.log(at), np.log([curve[value] for value in at]), 1)[0])


def _misfit(x: np.ndarray, y: np.ndarray) -> float:
    return float(np.sum((np.polyval(np.polyfit(x, y, 1), x) - y) ** 2))


def _listed(figures: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {short(value)}" for name, value in figures.items())


def _by(name: str, figures: Mapping[float, float]) -> str:
    return ", ".join(f"{short(value)} at {name} = {at:g}" for at, value in figures.items())
