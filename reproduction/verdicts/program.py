"""Claims about the examples of Section 1, and about γ and r, the program's parameters, in Section 6.1."""

from __future__ import annotations

import numpy as np

from reproduction.findings import Findings, short, span
from reproduction.points import WORKLOADS
from reproduction.verdicts.judging import CLEARLY, FAR, STEADY, UNKNOWN, Judgement, at_each, exponent, judged, listed


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
    text = f"time at the smallest γ over that at the largest: {listed(gains)}"
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
    listed = "; ".join(f"{workload} {at_each('ε', of_workload)}" for workload, of_workload in ratios.items())
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
    return judged([ratio <= STEADY for ratio in ratios.values()], f"largest over smallest error: {listed(ratios)}")


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
        power = f", like r^{exponent(times):.1f}" if growth > CLEARLY else ""
        texts.append(f"{workload} {short(growth)} times{power}")
    return judged(fits, f"time from r = rank(W) to the largest r: {'; '.join(texts)}")


def _misfit(x: np.ndarray, y: np.ndarray) -> float:
    return float(np.sum((np.polyval(np.polyfit(x, y, 1), x) - y) ** 2))
