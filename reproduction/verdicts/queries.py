"""Claims about m and s, the number of queries and their rank, in Sections 6.3 and 6.4, and about the whole paper."""

from __future__ import annotations

from reproduction.findings import Findings, short
from reproduction.points import BASELINES
from reproduction.verdicts.judging import (
    CLEARLY,
    FAILS,
    HOLDS,
    IN_PART,
    LINEAR,
    STEADY,
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


def low_rank_wins_with_few_queries(findings: Findings) -> Judgement:
    """Figure 7: m ≤ n / 4."""
    cells = {row.n for row in findings.of("figure-7", "LM")}
    gaps = {m: gap for m, gap in gaps_to_rivals(findings, "figure-7").items() if cells and m <= max(cells) / 4}
    return judged([gap > 1 for gap in gaps.values()], f"best rival over LRM: {at_each('m', gaps)}")


def errors_converge_with_queries(findings: Findings) -> Judgement:
    """Figure 7: the worst mechanism of the paper over the best, at the smallest and the largest m."""
    curves = [findings.low_rank("figure-7"), *(findings.curve("figure-7", name) for name in BASELINES)]
    known = sorted(set(curves[0]).intersection(*curves[1:]))
    if len(known) < 2:
        return Judgement(UNKNOWN)
    spread = {m: max(curve[m] for curve in curves) / min(curve[m] for curve in curves) for m in known}
    text = f"worst over best: {at_each('m', spread)}"
    if spread[known[-1]] <= CLEARLY:
        return Judgement(HOLDS, text)
    return Judgement(IN_PART if spread[known[-1]] * STEADY < spread[known[0]] else FAILS, text)


def wavelets_win_with_many_queries(findings: Findings) -> Judgement:
    """Figure 7 at m = 1024: WM against the others."""
    low_rank = findings.low_rank("figure-7")
    errors = {name: findings.curve("figure-7", name).get(1024) for name in BASELINES} | {"LRM": low_rank.get(1024)}
    known = {name: error for name, error in errors.items() if error is not None}
    if not {"LM", "WM", "HM"} <= set(known):
        return Judgement(UNKNOWN, end_of(findings, "figure-7"))
    least = min(known.values())
    text = f"m = 1024: {listed(known)}"
    if "LRM" not in known:
        return Judgement(UNKNOWN if known["WM"] == least else FAILS, f"{text}; LRM was not finished")
    if known["WM"] == least:
        return Judgement(HOLDS, text)
    return Judgement(IN_PART if known["WM"] <= STEADY * least else FAILS, text)


def low_rank_wins_for_any_queries(findings: Findings) -> Judgement:
    """Figure 8."""
    gaps = gaps_to_rivals(findings, "figure-8")
    return judged([gap >= CLEARLY for gap in gaps.values()], f"best rival over LRM: {at_each('m', gaps)}")


def linear_in_rank(findings: Findings) -> Judgement:
    """Figure 9: the exponent of LRM's error, and of its ratio to LM's, which is 2 ‖W‖² / (m ε²)."""
    low_rank, plain = findings.low_rank("figure-9"), findings.curve("figure-9", "LM")
    known = sorted(set(low_rank) & set(plain))
    if len(known) < 3:
        return Judgement(UNKNOWN)
    whole, relative = exponent({s: low_rank[s] for s in known}), exponent({s: low_rank[s] / plain[s] for s in known})
    text = f"error like s^{whole:.2f}; error over ‖W‖² like s^{relative:.2f} (s = {known[0]:g} to {known[-1]:g})"
    return judged([LINEAR[0] <= slope <= LINEAR[1] for slope in (whole, relative)], text)


def two_orders_at_low_rank(findings: Findings) -> Judgement:
    """Figure 9 at the smallest s; the paper's has n = 1024, and the gain depends on n."""
    known = findings.rivals("figure-9")
    cells = max((row.n for row in findings.of("figure-9", "LM")), default=0)
    if not known or cells < 1024:
        return Judgement(UNKNOWN, f"this run has n = {cells}" if cells else "")
    return two_orders(findings, "figure-9", min(known))


def others_stable_in_rank(findings: Findings) -> Judgement:
    """Figure 9: LM, WM and HM over all s."""
    growth = {}
    for name in BASELINES:
        curve = findings.curve("figure-9", name)
        if len(curve) > 1:
            growth[name] = curve[max(curve)] / curve[min(curve)]
    text = f"error at the largest s over that at the smallest: {listed(growth)}"
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


def consistently_better(findings: Findings) -> Judgement:
    """Figures 4 to 9: LRM below every rival."""
    gaps = [gap for number in range(4, 10) for gap in gaps_to_rivals(findings, f"figure-{number}").values()]
    won = sum(gap > 1 for gap in gaps)
    text = f"LRM has the least error of the paper's mechanisms at {won} of {len(gaps)} points"
    return judged([gap > 1 for gap in gaps], text)
