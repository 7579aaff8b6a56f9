"""The claims of docs/accounting.md: charges against 60 digits, and what adaptive programmes can reach.

    python benchmarks/accounting.py                                2 000 releases of each kind, 1 000 programmes
    python benchmarks/accounting.py --cases 20 --programmes 50

Charges: random releases, each computed again by mpmath with 60 digits, from the distributions that are drawn. Ours must
never be below, and at most 0.1 % above. Programmes: random adaptive ones over noise that is cut into a few outcomes, of
which every path is followed: δ is then a sum over all of them. None may be above the δ of the ledger that granted its
spends. Needs mpmath. Ends with 1 if a claim fails.
"""

from __future__ import annotations

import argparse
import itertools
import math
import random
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.integrate import quad
from scipy.special import ndtr

from batchdp.accounting import epsilon_of_mu2, epsilon_of_rho, gaussian_mu2, laplace_rho
from batchdp.ledger.account import Account
from batchdp.ledger.granting import remaining_for
from batchdp.privacy import GAUSSIAN, LAPLACE, Budget, Noise

MOST = 1e-3
"""Of a charge above the truth."""
ORDERS = ("1e-20", "0.01", "0.5", "1", "3", "10", "100", "1e4", "1e6")
"""α − 1 of the Rényi divergences that are looked at."""
STEPS = 64
"""σ and λ of the noise in programmes, in lattice steps."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=2_000, help="releases of each kind")
    parser.add_argument("--programmes", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    failed = False
    for kind in KINDS:
        start = time.perf_counter()
        least, most = compare(kind, asked.cases, random.Random(asked.seed))
        failed |= not 0 <= least <= most <= MOST
        seconds = time.perf_counter() - start
        print(
            f"{kind}: {asked.cases:,} releases, {least:.2e} to {most:.2e} above the truth ({seconds:.0f} s)", flush=True
        )
    by_composition, granted, delta = counterexample()
    failed |= delta > 1e-6
    print(f"counterexample: δ = {by_composition:.3g} by composition; granted {granted}, δ = {delta:.3g}")
    worst = programmes(asked.programmes, random.Random(asked.seed))
    failed |= worst > 1
    print(f"{asked.programmes:,} adaptive programmes: at most {worst:.6f} of the ledger's δ")
    return int(failed)


# ── charges against 60 digits ──


def compare(kind: str, cases: int, rng: random.Random) -> tuple[float, float]:
    """The least and the most that charges of random releases are above the truth, relatively."""
    import mpmath as mp

    excesses = []
    with mp.workdps(60):
        for _ in range(cases):
            ours, truth = KINDS[kind](rng, mp)
            excesses.append(float(mp.mpf(ours.numerator) / ours.denominator / truth - 1))
    return min(excesses), max(excesses)


def laplace_in_rho(rng: random.Random, mp: Any) -> tuple[Fraction, Any]:
    """Discrete Laplace noise: the largest Rényi divergence over its order, which is at α → 1."""
    scale = Fraction(10 ** rng.uniform(math.log10(64), 9)).limit_denominator(10**9)
    moved = max(1, round(scale * Fraction(10 ** rng.uniform(-3, 1.3))))
    b = mp.mpf(scale.numerator) / scale.denominator
    q, epsilon = mp.exp(-1 / b), moved / b
    found = []
    for order in ORDERS:
        s = mp.mpf(order)
        ends = mp.exp(s * epsilon) / (1 - q) + mp.exp(-s * epsilon) * q**moved / (1 - q)
        ratio = q * mp.exp(-2 * s / b)
        between = mp.exp(s * epsilon) * ratio * (1 - ratio ** (moved - 1)) / (1 - ratio)
        found.append(mp.log((ends + between) * (1 - q) / (1 + q)) / s / (1 + s))
    return laplace_rho(moved / scale, scale), max(found)


def gaussian_in_delta(rng: random.Random, mp: Any) -> tuple[Fraction, Any]:
    """Continuous Gaussian noise: the ε at which its profile is δ; in one of twenty cases integrated numerically too."""
    mu2 = Fraction(10 ** rng.uniform(-4, 2))
    delta = Fraction(math.erf(math.sqrt(mu2 / 8)) * 10 ** rng.uniform(-12, -0.5))  # of what ε = 0 has
    ours = epsilon_of_mu2(mu2, delta)
    mu, most = mp.sqrt(mp.mpf(mu2.numerator) / mu2.denominator), mp.mpf(delta.numerator) / delta.denominator

    def profile(epsilon: Any) -> Any:
        return mp.ncdf(mu / 2 - epsilon / mu) - mp.exp(epsilon) * mp.ncdf(-mu / 2 - epsilon / mu)

    truth = mp.findroot(lambda one: mp.log(profile(one) / most), mp.mpf(float(ours)))
    if rng.random() < 0.95:  # an integral takes long, and each is the same function
        return ours, truth
    start = truth / mu - mu / 2  # from where on the one density is more than e^ε times the other
    excess = mp.quad(
        lambda x: mp.npdf(x) - mp.exp(truth) * mp.npdf(x + mu), [start, start + 1, start + 3, start + 8, start + 20]
    )
    assert abs(excess / most - 1) < mp.mpf("1e-25")
    return ours, truth


def discrete_gaussian_in_delta(rng: random.Random, mp: Any) -> tuple[Fraction, Any]:
    """Discrete Gaussian noise: the same as a sum over whole numbers."""
    scale, delta = rng.randint(64, 160), Fraction(10 ** rng.uniform(-12, -2))
    moved = max(1, round(scale * 10 ** rng.uniform(-1.5, 0.5)))
    ours = epsilon_of_mu2(gaussian_mu2(Fraction(moved**2, 2 * scale**2), Fraction(scale)), delta)
    reach = 13 * scale
    below = [mp.mpf(0)]  # of x ≤ −reach, x ≤ −reach + 1, …
    term = mp.exp(mp.mpf(-(reach**2)) / (2 * scale**2))
    for x in range(-reach, reach + moved + 1):
        below.append(below[-1] + term)
        term *= mp.exp(mp.mpf(-(2 * x + 1)) / (2 * scale**2))
    whole, most = below[-1], mp.mpf(delta.numerator) / delta.denominator

    def profile(epsilon: Any) -> Any:
        end = mp.floor((moved**2 - 2 * scale**2 * epsilon) / (2 * moved))  # up to where it counts
        if end < -reach:
            return mp.mpf(0)
        place = int(end) + reach + 1
        return (below[place] - mp.exp(epsilon) * below[max(0, place - moved)]) / whole

    low, high = mp.mpf(0), mp.mpf(2 * float(ours))
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if profile(middle) > most else (low, middle)
    return ours, low


def rho_in_delta(rng: random.Random, mp: Any) -> tuple[Fraction, Any]:
    """ρ of anything: the least ε over all orders."""
    rho, delta = Fraction(10 ** rng.uniform(-4, 2)), Fraction(10 ** rng.uniform(-12, -4))
    ours = epsilon_of_rho(rho, delta)
    r, d = (mp.mpf(one.numerator) / one.denominator for one in (rho, delta))

    def implied(log: Any) -> Any:
        less = mp.exp(log)
        return (1 + less) * r + ((1 + less) * mp.log(less / (1 + less)) - log - mp.log(d)) / less

    best = mp.findroot(lambda log: mp.diff(implied, log), mp.log(mp.sqrt(-mp.log(d) / r)))
    return ours, implied(best)


KINDS: dict[str, Callable[[random.Random, Any], tuple[Fraction, Any]]] = {
    "discrete Laplace noise in ρ": laplace_in_rho,
    "continuous Gaussian noise in (ε, δ)": gaussian_in_delta,
    "discrete Gaussian noise in (ε, δ)": discrete_gaussian_in_delta,
    "ρ in (ε, δ)": rho_in_delta,
}


# ── adaptive programmes ──


def counterexample(epsilon: float = 1.0, delta: float = 1e-6) -> tuple[float, tuple[bool, ...], float]:
    """Gaussian noise of μ = 0.1; then, by its output, Gaussian noise of 0.2145 or Laplace noise of 0.619.

    Each sequence is within (ε, δ) by exact composition. Both: the δ of the programme that picks the worse one for every
    output; what a ledger grants; and the δ of the programme as it is granted.
    """

    def gaussian(t: float) -> float:
        mu = 0.2145
        return float(ndtr(mu / 2 - t / mu) - math.exp(t) * ndtr(-mu / 2 - t / mu))

    def laplace(t: float) -> float:
        return 0.0 if t >= 0.619 else 1 - math.exp((t - 0.619) / 2) if t > -0.619 else 1 - math.exp(t)

    def together(second: Sequence[Callable[[float], float]]) -> float:
        """E over the first loss, which is normal with mean μ²/2 and variance μ², of the worst second step."""

        def worst(z: float) -> float:
            loss = 0.1 * z + 0.005
            return math.exp(-z * z / 2) / math.sqrt(2 * math.pi) * max(one(epsilon - loss) for one in second)

        return float(quad(worst, -8, 14, limit=2000, epsabs=1e-13, points=list(range(-8, 15)))[0])

    account = Account.of(Budget(LAPLACE, epsilon), delta)
    first = account.spend(account.charge(Budget(GAUSSIAN, 0.1**2 / 2), 1e9))
    ways = ((GAUSSIAN, 0.2145**2 / 2, gaussian), (LAPLACE, 0.619, laplace))
    seconds = [bool(first.spend(first.charge(Budget(noise, size), 1e9)).admitting) for noise, size, _ in ways]
    allowed = [one for (_, _, one), granted in zip(ways, seconds, strict=True) if granted]
    return together([gaussian, laplace]), (bool(first.admitting), *seconds), together(allowed)


@dataclass(frozen=True)
class Path:
    """Where a programme is: how likely so on each of two neighbours, and what its ledger has left."""

    here: float
    there: float
    account: Account
    steps: int


def programmes(count: int, rng: random.Random) -> float:
    """The largest δ of random adaptive programmes, relative to that of the ledgers that granted their spends."""
    worst = 0.0
    for _ in range(count):
        epsilon, delta = rng.choice([0.25, 0.5, 1.0, 2.0]), rng.choice([0.001, 0.01, 0.05, 0.2])
        gaussian = rng.choice([None, None, 0.5, 0.0, 1.0])
        account = Account.of(Budget(LAPLACE, epsilon), delta, gaussian)
        found = follow(Path(1.0, 1.0, account, rng.randint(1, 4)), math.exp(epsilon), rng)
        worst = max(worst, found[0] / delta, found[1] / delta)
    return worst


def follow(path: Path, factor: float, rng: random.Random) -> NDArray[np.float64]:
    """Σ (P − e^ε Q)₊ over all that a programme can put out from here on, and the same with P and Q exchanged."""
    end = np.maximum(0.0, [path.here - factor * path.there, path.there - factor * path.here])
    if path.steps == 0 or path.here == 0 or path.there == 0:
        return end
    noise: Noise = rng.choice([GAUSSIAN, GAUSSIAN, LAPLACE])
    left = float(remaining_for(path.account, noise))
    asked = left * rng.choice([1.0, 1.0, 0.5, rng.random(), 1.1])  # what is too much is refused
    moved = int(STEPS * (asked if noise is LAPLACE else math.sqrt(2 * asked)))
    if moved == 0:
        return end
    amount = Fraction(moved, STEPS) if noise is LAPLACE else Fraction(moved**2, 2 * STEPS**2)
    after = path.account.spend(path.account.charge(Budget(noise, amount), float(STEPS)))
    if not after.admitting:
        return end
    total = np.zeros(2)
    for here, there in outcomes(noise, moved, path, factor, rng):
        total += follow(Path(path.here * here, path.there * there, after, path.steps - 1), factor, rng)
    return total


def outcomes(noise: Noise, moved: int, path: Path, factor: float, rng: random.Random) -> list[tuple[float, float]]:
    """The noise on 0 and on `moved`, cut into a few outcomes: where the ratio passes e^±ε, and by lot."""
    here, there = drawn(noise, moved)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = path.here * here / (path.there * there)
    cuts = {int(np.searchsorted(-ratio, -limit)) for limit in (factor, 1 / factor)}
    cuts |= {rng.randrange(1, len(here)) for _ in range(rng.choice([0, 1, 2]))}
    places = [0, *sorted(cuts - {0, len(here)}), len(here)]
    return [(float(here[a:b].sum()), float(there[a:b].sum())) for a, b in itertools.pairwise(places)]


@lru_cache(maxsize=1000)
def drawn(noise: Noise, moved: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The probabilities of discrete noise on 0 and on `moved`, from left to right; what is far away is left out."""
    reach = (40 if noise is LAPLACE else 9) * STEPS
    x = np.arange(-reach, reach + moved + 1, dtype=np.float64)

    def at(centre: int) -> NDArray[np.float64]:
        away = np.abs(x - centre) / STEPS
        weights = np.exp(-away) if noise is LAPLACE else np.exp(-(away**2) / 2)
        return np.asarray(weights / weights.sum())

    return at(0), at(moved)


if __name__ == "__main__":
    sys.exit(main())
