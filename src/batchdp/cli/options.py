"""Options that several commands have, spelled the same everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object for machines.")]
Epsilon = Annotated[float | None, typer.Option("--epsilon", "-e", help="The privacy budget ε, 0.1 to 1 is usual.")]
Rho = Annotated[float | None, typer.Option("--rho", help="The budget ρ, for plans with Gaussian noise.")]
Plan = Annotated[Path, typer.Argument(metavar="PLAN", help="A plan written by `batchdp plan`.")]
