"""`batchdp budget`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from batchdp.cli.options import AsJson, Epsilon, Rho

EXAMPLES = ("batchdp budget budget.db --create --epsilon 3", "batchdp budget budget.db")


def command(
    ledger: Annotated[Path, typer.Argument(metavar="LEDGER", help="The ledger's file.")],
    create: Annotated[bool, typer.Option("--create", help="Start a ledger with this budget.")] = False,
    epsilon: Epsilon = None,
    rho: Rho = None,
    as_json: AsJson = False,
) -> None:
    """Show what was spent, on what, and what is left; the ledger's hash chain is verified first."""
    from batchdp.cli.show import console, figure, print_json, table
    from batchdp.ledger import Ledger

    if not create and (epsilon is not None or rho is not None):
        raise typer.BadParameter("a budget is only set with --create", param_hint="--epsilon, --rho")
    opened = Ledger.create(ledger, epsilon=epsilon, rho=rho) if create else Ledger.open(ledger)
    opened.verify()
    history = opened.history()
    if as_json:
        facts = {"ledger": str(ledger), "unit": opened.unit, "total": opened.total, "spent": opened.spent}
        print_json({**facts, "remaining": opened.remaining, "history": [asdict(entry) for entry in history]})
        return
    unit = {"epsilon": "ε", "rho": "ρ"}[opened.unit]
    if history:
        rows = (
            (entry.release_id, entry.table, entry.time[:19], entry.state, figure(entry.charged)) for entry in history
        )
        console.print(table(str(ledger), ("release", "table", "when (UTC)", "state", unit), rows, texts=4))
    console.print(
        f"{unit} = {figure(opened.total)} in all, {figure(opened.spent)} spent, {figure(opened.remaining)} left.",
        highlight=False,
    )
