"""How claims are judged: a verdict with the figures behind it, and the figures that several judges look at."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from reproduction.findings import RIVALS, Curve, Findings, best, short, varied

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


def two_orders(findings: Findings, figure: str, at: float) -> Judgement:
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


def gaps_to_rivals(findings: Findings, figure: str) -> Curve:
    """The best rival's error over LRM's, by the value that is varied."""
    low_rank, rivals = findings.low_rank(figure), findings.rivals(figure)
    return {value: rivals[value] / low_rank[value] for value in sorted(set(low_rank) & set(rivals))}


def end_of(findings: Findings, figure: str) -> str:
    """Why a claim about a large size is not judged."""
    known = best(findings.curve(figure, name) for name in RIVALS)
    return f"this run ends at {varied(figure)} = {max(known):g}" if known else ""


def exponent(curve: Curve) -> float:
    """The exponent of the power that fits best."""
    at = sorted(curve)
    return float(np.polyfit(np.log(at), np.log([curve[value] for value in at]), 1)[0])


def listed(figures: Mapping[str, float]) -> str:
    """Figures by name."""
    return ", ".join(f"{name} {short(value)}" for name, value in figures.items())


def at_each(name: str, figures: Mapping[float, float]) -> str:
    """Figures by the value of a parameter."""
    return ", ".join(f"{short(value)} at {name} = {at:g}" for at, value in figures.items())
