"""Options that several commands have, spelled the same everywhere."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object for machines.", metavar="")]
Assume = Annotated[
    list[str] | None,
    typer.Option(
        help="How many records the groups of a derived answer have, 1000 if left out: its accuracy depends on it. A "
        "number alone is for all; can be given several times.",
        metavar="NAME=N",
    ),
]
Weight = Annotated[
    list[str] | None,
    typer.Option(
        help="How much a statement or query matters, 1 if left out; can be given several times.", metavar="NAME=N"
    ),
]
All = Annotated[bool, typer.Option("--all", help="Print every row of every table.", metavar="")]
Epsilon = Annotated[
    float | None, typer.Option("--epsilon", "-e", help="The privacy budget ε; 0.1 to 1 is usual.", metavar="E")
]
Rho = Annotated[float | None, typer.Option("--rho", help="The budget ρ, for plans with Gaussian noise.", metavar="R")]
Plan = Annotated[Path, typer.Argument(metavar="PLAN", help="A plan written by `batchdp plan`.", readable=False)]

WantConsistent = Annotated[
    bool,
    typer.Option("--consistent", help="Add answers that agree and are not negative.", metavar=""),
]
Whole = Annotated[bool, typer.Option("--whole", help="Consistent answers in whole numbers.", metavar="")]


def either(epsilon: float | None, rho: float | None) -> None:
    """Refuse neither and both: wrong usage, whatever the plan is."""
    if (epsilon is None) == (rho is None):
        given = "neither is" if epsilon is None else "both are"
        raise typer.BadParameter(
            f"{given} given; give one, such as --epsilon 0.5 (--rho for Gaussian noise)", param_hint="--epsilon, --rho"
        )


class ShapeChoice(StrEnum):
    """Shapes of noise that can be asked for."""

    pair = "pair"
    any = "any"


Shape = Annotated[
    ShapeChoice,
    typer.Option(help="Laplace noise on a pair, or noise in the shape of the batch where that is clearly better."),
]
ShapeRank = Annotated[
    int, typer.Option(help="Measurements that may share a shape: more take longer to draw.", metavar="K", min=1)
]
DrawSeconds = Annotated[float, typer.Option(help="What a draw of shaped noise may take, by its estimate.", metavar="S")]
