"""Claims about n, the number of cells, in Section 6.2."""

from __future__ import annotations

from itertools import pairwise
from math import log2

from reproduction.findings import RIVALS, Findings, short, span
from reproduction.points import BASELINES, WORKLOADS
from reproduction.verdicts.judging import (
    CLEARLY,
    LINEAR,
    UNKNOWN,
    Judgement,
    at_each,
    end_of,
    exponent,
    gaps_to_rivals,
    judged,
    listed,
    two_orders,
)


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
            texts.append(f"n = {row.n}: LM {short(row.error)}, {listed(compared)}")
    return judged(conditions, "; ".join(texts))


def others_linear_in_cells(findings: Findings) -> Judgement:
    """Figure 4: the exponents of the errors of all but LRM."""
    curves = {name: findings.curve("figure-4", name) for name in RIVALS}
    slopes = {name: exponent(curve) for name, curve in curves.items() if len(curve) > 2}
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
            texts.append(f"n = {row.n}: LM {short(row.error)}, {listed(known)}")
    return judged(conditions, "; ".join(texts), end_of(findings, "figure-5"))


def low_rank_wins_on_ranges(findings: Findings) -> Judgement:
    """Figure 5: LRM at least twice as good as any rival."""
    gaps = gaps_to_rivals(findings, "figure-5")
    return judged([gap >= CLEARLY for gap in gaps.values()], f"best rival over LRM: {at_each('n', gaps)}")


def low_rank_wins_on_related(findings: Findings) -> Judgement:
    """Figure 6: LRM below every rival."""
    gaps = gaps_to_rivals(findings, "figure-6")
    return judged([gap > 1 for gap in gaps.values()], f"best rival over LRM: {at_each('n', gaps)}")


def two_orders_on_related(findings: Findings) -> Judgement:
    """Figure 6 at n = 8192."""
    known = findings.rivals("figure-6")
    if 8192 not in known:
        return Judgement(UNKNOWN, end_of(findings, "figure-6"))
    return two_orders(findings, "figure-6", 8192)
