"""What noise costs in each currency (ε, ρ, μ²), and which (ε, δ) it stands for: bounds that are proven, rounded the
safe way. docs/accounting-proofs.md has the proofs.

Numbers have 80 decimal digits here. Each comes from some thousand additions, products, quotients, roots, exponentials
and logarithms of positive numbers, which the standard rounds to the nearest: it is right to 10⁻⁷⁰ of itself. The few
differences are widened by `SLACK` of what is subtracted, so that no result is on the wrong side of the truth.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache

LEAST_SCALE = 64
"""Of discrete noise, in lattice steps."""
ROUNDING = 4
"""r² of the randomised rounding that makes a discrete Gaussian of a continuous one."""
COORDINATES = 2**60
"""Measurements with Gaussian noise that all releases of one ledger have together, at the most."""
APART = COORDINATES * Fraction(21, 10**35)
"""a: a discrete Gaussian and its randomised rounding differ by a factor of e^±4e^(−2π²r²) a coordinate."""
DIGITS = 30
"""Of charges and totals that are no decimal numbers."""
TINY = Fraction(1, 10**12)
"""An ε below it costs ρ = ε²/2: less is not worth the digits."""
SLACK = Decimal("1e-55")
PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803482534211706798")
_EXACT = Context(prec=80, rounding=ROUND_HALF_EVEN, Emin=-(10**9), Emax=10**9)
NEAR = 6
"""Up to here the normal distribution is summed up, from here on it is a continued fraction."""


def round_digits(amount: Fraction | Decimal, *, up: bool) -> Fraction:
    """The nearest decimal number of `DIGITS` digits that is not below, or not above."""
    top, bottom = amount.as_integer_ratio()
    context = Context(prec=DIGITS, rounding=ROUND_CEILING if up else ROUND_FLOOR, Emin=-(10**9), Emax=10**9)
    return Fraction(context.divide(Decimal(top), Decimal(bottom)))


def _decimal(amount: Fraction) -> Decimal:
    return _EXACT.divide(Decimal(amount.numerator), Decimal(amount.denominator))


# ── what noise costs ──


MOST_SCALE = Fraction(2**64)
"""That is told apart where a loss is computed."""


def laplace_rho(epsilon: Fraction, scale: Fraction) -> Fraction:
    """The ρ of discrete Laplace noise of this scale or larger that loses ε: ε − c (1 − e^−ε), c = (1/b) / sinh(1/b)."""
    implied = epsilon**2 / 2
    if epsilon < TINY:
        return implied
    with localcontext(_EXACT):
        # Beyond, the difference of the two exponentials would lose its digits; less scale costs more.
        loss, step = _decimal(epsilon), 1 / _decimal(min(scale, MOST_SCALE))
        c = 2 * step / (step.exp() - (-step).exp())
        found = loss - c * (1 - (-loss).exp()) + SLACK * loss
    return min(implied, round_digits(found, up=True))


def root_below(square: Fraction) -> Fraction:
    """The root of a number, rounded down."""
    with localcontext(_EXACT):
        return round_digits(_decimal(square).sqrt() * (1 - SLACK), up=False)


def epsilon_within(rho: Fraction, scale: Fraction = Fraction(LEAST_SCALE)) -> Fraction:
    """The ε of discrete Laplace noise, of this scale or larger, that loses at most ρ."""
    return max(root_below(2 * rho), _largest(lambda epsilon: laplace_rho(epsilon, scale), rho))


def gaussian_mu2(rho: Fraction, scale: Fraction) -> Fraction:
    """The μ² of discrete Gaussian noise of this scale or larger that loses ρ: at least Σ d²/(σ² − 4)."""
    return round_digits(2 * rho / (1 - ROUNDING / scale**2), up=True)


def rho_within(mu2: Fraction, scale: Fraction = Fraction(LEAST_SCALE)) -> Fraction:
    """The ρ of discrete Gaussian noise, of this scale or larger, that loses at most μ²."""
    return round_digits(mu2 * (1 - ROUNDING / scale**2) / 2 * (1 - Fraction(2, 10**DIGITS)), up=False)


# ── values that are found by a threshold ──


def threshold_delta(values: int, scale: Fraction, least: int) -> Fraction:
    """The chance, rounded up, that any of so many values of one unit alone reaches `least` with discrete Laplace noise.

    A value of one unit has noise of at least τ − 1 with q^(τ−1) / (1 + q), q = e^(−1/b).
    """
    with localcontext(_EXACT):
        step = 1 / _decimal(scale)
        found = values * (-(least - 1) * step).exp() / (1 + (-step).exp())
        return round_digits(found * (1 + SLACK), up=True)


def least_threshold(values: int, scale: Fraction, delta: Fraction) -> int:
    """The least τ ≥ 1 at which so many values of one unit alone are seen with at most δ, and one at most with 1 − q.

    The second is what keeps ε where such a value is not seen: not seeing it is then at most e^(1/b) times as likely
    without that unit as with it.
    """
    with localcontext(_EXACT):
        step = 1 / _decimal(scale)
        unseen = 1 - (-step).exp() - SLACK
        known = Fraction(max(Decimal(0), unseen))
        whole = 1 + (-step).exp()
        needed = min(_decimal(delta) / values, max(unseen, SLACK))
        found = 1 - (needed * whole).ln() / step
    least = max(1, math.ceil(found))
    while threshold_delta(values, scale, least) > delta or threshold_delta(1, scale, least) > known:
        least += 1
    return least


# ── the (ε, δ) of μ², of discrete Gaussian noise ──


def _mills(x: Decimal) -> Decimal:
    """Φ(−x) / φ(x) for x ≥ 0, right to 10⁻⁶⁰ of itself."""
    if x < NEAR:  # 1/2φ(x) − (x + x³/3 + x⁵/15 + …), of which the largest part is below 10⁹
        total = term = x
        odd = 1
        while term > total * Decimal("1e-75"):
            odd += 2
            term = term * x * x / odd
            total += term
        return (2 * PI).sqrt() * (x * x / 2).exp() / 2 - total
    rest = x  # 1/(x + 1/(x + 2/(x + …))), whose parts in turn are above and below: at 300 they agree to 10⁻⁷⁵
    for part in range(300, 0, -1):
        rest = x + part / rest
    return 1 / rest


def gaussian_delta(mu2: Fraction, epsilon: Fraction) -> Fraction:
    """A δ with which discrete Gaussian noise of so much μ² is (ε, δ)-differentially private."""
    with localcontext(_EXACT):
        lowered, mu = _decimal(epsilon - 2 * APART), _decimal(mu2).sqrt()
        if lowered <= 0:
            return Fraction(1)
        z = lowered / mu - mu / 2
        if z > 100:
            return Fraction(1, 10**1000)  # Φ(−100) is below
        density = (-z * z / 2).exp() / (2 * PI).sqrt()
        above = density * _mills(abs(z))
        above = above if z >= 0 else 1 - above
        found = above * (1 + SLACK) - density * _mills(z + mu) * (1 - SLACK) + SLACK * (z < 0)
        return round_digits(min(Decimal(1), found * _decimal(APART).exp()), up=True)


@lru_cache(maxsize=4096)
def largest_mu2(epsilon: Fraction, delta: Fraction) -> Fraction:
    """The largest μ² that is (ε, δ)-differentially private, rounded down; 0 where none is."""
    return _largest(lambda mu2: gaussian_delta(mu2, epsilon), delta)


@lru_cache(maxsize=4096)
def epsilon_of_mu2(mu2: Fraction, delta: Fraction) -> Fraction:
    """An ε, rounded up, with which so much μ² is (ε, δ)-differentially private: the least one, to eleven digits."""
    about = _about_epsilon(math.sqrt(mu2), _log(delta))
    for digits in (11, 8, 5):  # found in floats, and seen to hold
        found = round_digits((Fraction(about) + 2 * APART) * (1 + Fraction(1, 10**digits)), up=True)
        if gaussian_delta(mu2, found) <= delta:
            return found
    return 1 / _largest(lambda inverse: gaussian_delta(mu2, 1 / inverse), delta)


def _about_epsilon(mu: float, log_delta: float) -> float:
    from scipy.special import erfcx, log_ndtr

    def log_of(epsilon: float) -> float:
        z = epsilon / mu - mu / 2
        if z < 5:
            above, below = log_ndtr(-z), epsilon + log_ndtr(-z - mu)
            return float(above + math.log(max(1e-300, -math.expm1(min(0.0, below - above)))))
        root = math.sqrt(2)
        return -z * z / 2 + math.log(max(1e-300, float(erfcx(z / root) - erfcx((z + mu) / root)) / 2))

    low, high = 0.0, 1e-12
    while log_of(high) > log_delta and high < 1e300:
        low, high = high, 4 * high
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if log_of(middle) > log_delta else (low, middle)
    return high


# ── the (ε, δ) of ρ, of anything that is zero-concentrated ──


def _best_order(rho: float, delta: float) -> Decimal:
    """The α, about, at which ρ-zCDP implies the least ε."""

    def implied(log: float) -> float:
        less = math.exp(log)
        alpha = 1 + less
        return alpha * rho + (alpha * math.log(less / alpha) - log - math.log(delta)) / less

    low, high = -20.0, max(20.0, -math.log(rho) if rho > 0 else 700.0)
    for _ in range(120):
        third = (high - low) / 3
        if implied(low + third) <= implied(high - third):
            high -= third
        else:
            low += third
    return 1 + Decimal(math.exp(low))


@lru_cache(maxsize=4096)
def epsilon_of_rho(rho: Fraction, delta: Fraction) -> Fraction:
    """An ε, rounded up, with which ρ-zCDP implies (ε, δ) (Canonne, Kamath and Steinke, 2020): every α gives one."""
    with localcontext(_EXACT):
        alpha = _best_order(float(rho), float(delta))
        parts = (
            alpha * _decimal(rho),
            alpha * (1 - 1 / alpha).ln() / (alpha - 1),
            -(alpha - 1).ln() / (alpha - 1),
            -_decimal(delta).ln() / (alpha - 1),
        )
        return round_digits(max(Decimal(0), sum(parts) + SLACK * sum(map(abs, parts))), up=True)


@lru_cache(maxsize=4096)
def largest_rho(epsilon: Fraction, delta: Fraction) -> Fraction:
    """The largest ρ that implies (ε, δ)-differential privacy, rounded down; 0 where none does."""
    return _largest(lambda rho: epsilon_of_rho(rho, delta), epsilon)


def _largest(of: Callable[[Fraction], Fraction], most: Fraction) -> Fraction:
    """The largest number, to 17 digits, of which an increasing function is at most `most`; 0 where none is found.

    Whatever the search does, the function was seen to be at most so much there.
    """

    def excess(number: Fraction) -> float:
        found = of(number)
        difference = _log(found) - _log(most) if found > 0 else -math.inf
        return math.copysign(max(abs(difference), 1e-300), 1 if found > most else -1)

    low, high = Fraction(1, 16), Fraction(1)
    while (below := excess(low)) > 0:
        low, high = low / 16, low
        if low < Fraction(1, 10**300):
            return Fraction(0)
    while (above := excess(high)) <= 0:
        low, high, below = high, 16 * high, above
        if high > 10**40:
            return low
    side = 0.0  # on which the step before was: an end that stays counts half, so that both ends move
    for step in range(200):
        if high - low <= low / 10**17:
            break
        share = below / (below - above) if math.isfinite(below) and step % 4 < 3 else 0.5
        start, end = _log(low), _log(high)
        guess = Fraction(math.exp(start + share * (end - start))) if end > start + 1e-13 else low
        middle = round_digits(guess if low < guess < high else (low + high) / 2, up=False)
        found = excess(middle)
        if found <= 0:
            low, below, above = middle, found, above / (2 if side <= 0 else 1)
        else:
            high, above, below = middle, found, below / (2 if side >= 0 else 1)
        side = found
    return round_digits(low, up=False)


def _log(number: Fraction) -> float:
    return math.log(number.numerator) - math.log(number.denominator)
