"""How a strategy is looked for: the options of `plan`, with their defaults, checked once and kept in the plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

from batchdp.errors import StrategyError, check_finite, check_whole
from batchdp.mechanism.conversion import check_delta
from batchdp.optimizer import ShapeChoice
from batchdp.optimizer.options import checked_search, checked_shape
from batchdp.plans.criteria import Criteria, read_criteria
from batchdp.plans.for_estimates import ForEstimates
from batchdp.privacy import LAPLACE, NOISES, Budget, Privacy
from batchdp.queries.query import LARGEST_WEIGHT, LEAST_WEIGHT
from batchdp.strategies.bounds.convex import Objective
from batchdp.strategies.shaped import DEFAULT, ShapeLimits
from batchdp.workloads.encode.cells import MOST_CELLS

PlanObjective = Literal["fair", "sum", "max"]
"""What a plan minimises: every statement's mean relative squared error, all queries' squared errors, or the largest."""
FAIR: PlanObjective = "fair"
LARGEST: PlanObjective = "max"
Weights = tuple[tuple[str, float], ...]
OF_PLANS = ("max_cells", "weights", "accuracy", "for_estimates", "given")
"""Arguments that `optimize` has not."""


@dataclass(frozen=True)
class Given:
    """The releases that a plan is made on top of, and what of the errors that it minimises is together with them.

    Args:
        releases: their names.
        snapshot: which state of the table they are of.
        digest: of what they measured and how.
        alone: the error of the plan that would be made without them.
        without: the same, combined with them.
        together: the error of this plan, combined with them.
        bound: what is proven that no plan is below, combined with them; 0 if nothing is.
    """

    releases: tuple[str, ...]
    snapshot: str
    digest: str
    alone: float = field(default=0.0, compare=False)
    without: float = field(default=0.0, compare=False)
    together: float = field(default=0.0, compare=False)
    bound: float = field(default=0.0, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "releases", tuple(map(str, self.releases)))  # from a file
        for name in ("alone", "without", "together", "bound"):
            object.__setattr__(self, name, check_finite(name, getattr(self, name), least=0))

    def sentences(self, budget: str) -> list[str]:
        """What the plan is for, what it gains, and what has to be done with its answers."""
        many = len(self.releases)
        which = f"{many} earlier releases" if many > 1 else f"release {self.releases[0]}"
        bound = f", and no plan below {self.bound:,.4g}" if self.bound else ""
        return [
            f"On top of {which}, for a release at {budget}: what is minimised is {self.together:,.4g} when both are "
            f"combined. The plan without would have {self.without:,.4g} combined and {self.alone:,.4g} alone{bound}.",
            "The errors above are those of the new release alone. Combine it with what was given"
            + (f", as snapshot {self.snapshot}" if self.snapshot else "")
            + ".",
        ]


@dataclass(frozen=True)
class Options:
    """How the strategy was looked for; every field is an argument of `plan` or of `plan_for`."""

    privacy: Privacy | Literal["auto"] = LAPLACE.privacy
    objective: PlanObjective = FAIR
    seconds: float | None = None
    seed: int = 0
    epsilon: float = 1.0
    delta: float | None = None
    max_cells: int = MOST_CELLS
    weights: Weights = ()
    """By hand, by the name of a statement or query."""
    accuracy: Criteria | None = None
    """What was wanted of `plan_for`; with objective "max", errors are relative to it."""
    shape: ShapeChoice = "pair"
    limits: ShapeLimits = DEFAULT
    for_estimates: ForEstimates | None = None
    """How tables are weighed where answers will be denoised."""
    given: Given | None = None
    """The releases that it is made on top of."""

    def __post_init__(self) -> None:
        if self.objective not in get_args(PlanObjective):
            known = " or ".join(map(repr, get_args(PlanObjective)))
            raise StrategyError(f"objective={self.objective!r} must be {known}")
        limits = ShapeLimits(**self.limits) if isinstance(self.limits, dict) else self.limits  # from a file
        asked = checked_search(self.privacy, self.searched, self.seconds, self.seed)
        estimates = self.for_estimates
        if estimates is not None:
            check_weighed_by_simulation(self.privacy, self.objective)
        is_read = self.accuracy is None or isinstance(self.accuracy, Criteria)
        checked = {
            "seconds": asked.seconds,
            "seed": asked.seed,
            "epsilon": float(Budget(LAPLACE, self.epsilon)),
            "delta": None if self.delta is None else check_delta(self.delta),
            "max_cells": check_whole("max_cells", self.max_cells, 1),
            "weights": checked_weights(self.weights),
            "accuracy": self.accuracy if is_read else read_criteria(self.accuracy),
            "for_estimates": ForEstimates(**estimates) if isinstance(estimates, dict) else estimates,  # from a file
            "given": Given(**self.given) if isinstance(self.given, dict) else self.given,  # from a file
            "limits": checked_shape(self.shape, self.privacy, limits),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @property
    def searched(self) -> Objective:
        """What `optimize` minimises: fair is a sum, with weights."""
        return "max" if self.objective == LARGEST else "sum"

    def as_dict(self) -> dict[str, Any]:
        """For files and digests."""
        given = asdict(self)
        given["weights"] = dict(self.weights)
        given["accuracy"] = None if self.accuracy is None else self.accuracy.as_dict()
        return {name: value for name, value in given.items() if value or name not in OF_PLANS[1:]}

    def of_search(self) -> dict[str, Any]:
        """The arguments of `optimize` among them."""
        given = {name: value for name, value in asdict(self).items() if name not in OF_PLANS}
        return {**given, "objective": self.searched, "limits": self.limits}


def check_weighed_by_simulation(privacy: str, objective: str) -> None:
    """Refuse what a plan for estimates cannot have beside its own weights."""
    if objective != FAIR:
        raise StrategyError(f"for_estimates finds the weights by itself; leave out objective={objective!r}")
    if privacy not in NOISES:
        raise StrategyError(
            f"for_estimates simulates one kind of noise; privacy={privacy!r} must be {' or '.join(map(repr, NOISES))}"
        )


def epsilon_of(privacy: str, epsilon: float, rho: float | None) -> float:
    """ε, or the one that implies ρ where that is given, as Gaussian noise takes it."""
    return epsilon if rho is None else (2 * float(Budget.of(NOISES.get(privacy, LAPLACE), rho=rho))) ** 0.5


def checked_weights(weights: Mapping[str, float] | Iterable[tuple[str, float]] | Any) -> Weights:
    """Weights by name, in the order of the names; refused unless every one is a number that can be meant."""
    if not isinstance(weights, Mapping | tuple):
        raise StrategyError(f"weights={weights!r} must be a dictionary from names to numbers, such as {{'total': 3}}")
    found: dict[str, float] = {}
    for name, weight in dict(weights).items():
        if not isinstance(name, str):
            raise StrategyError(f"weights holds the name {name!r}; give the name of a statement or query")
        number = check_finite(f"the weight of {name}", weight)
        if not LEAST_WEIGHT <= number <= LARGEST_WEIGHT:
            raise StrategyError(
                f"the weight of {name} is {number!r}; it must be from {LEAST_WEIGHT:g} to {LARGEST_WEIGHT:g}: "
                "1 is usual, with 3 its squared error counts three times as much"
            )
        found[name] = number
    return tuple(sorted(found.items()))
