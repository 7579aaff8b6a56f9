"""`batchdp audit`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

import batchdp
from batchdp.cli.files import AsJson, Epsilon, Plan, Rho
from batchdp.cli.show import print_json, progress, say

EXAMPLES = ("batchdp audit visits.plan", "batchdp audit visits.plan --epsilon 0.1 --runs 1000000")


def command(
    plan: Plan,
    epsilon: Epsilon = None,
    rho: Rho = None,
    runs: Annotated[
        int, typer.Option(help="How often the noise is drawn on each side.", metavar="N", min=1000)
    ] = 100_000,
    as_json: AsJson = False,
) -> None:
    """Check the privacy claim of a plan: exactly in whole numbers, then by attacking the noise. No data is read."""
    made = batchdp.load_plan(plan)
    if epsilon is None and rho is None:
        budget = made.strategy.noise.reference.arguments
    else:
        budget = {"epsilon": epsilon, "rho": rho}
    with progress("Attacking the noise"):
        done = batchdp.audit(made, **budget, runs=runs)
    if as_json:
        print_json({"passed": done.passed, "findings": [asdict(finding) for finding in done.findings]})
    else:
        say(str(done))
    if not done.passed:
        raise typer.Exit(1)
