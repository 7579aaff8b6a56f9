"""`batchdp budget`."""

from __future__ import annotations

from dataclasses import asdict
from io import BytesIO
from pathlib import Path
from typing import Annotated

import typer

import batchdp
from batchdp.cli.files import AsJson, Epsilon, Rho, check_output, either, open_ledger, path_argument, path_option
from batchdp.cli.show import console, figure, print_json, say, table
from batchdp.errors import LedgerError

EXAMPLES = (
    "batchdp budget budget.db --create --epsilon 3",
    "batchdp budget budget.db",
    "batchdp budget budget.db --plot together.svg",
    "batchdp budget old.db --migrate budget.db",
)
PICTURES = (".svg", ".png", ".pdf")


def command(
    ledger: Annotated[Path, path_argument("LEDGER", "The ledger's file.")],
    create: Annotated[bool, typer.Option("--create", help="Start a ledger with this budget.", metavar="")] = False,
    epsilon: Epsilon = None,
    rho: Rho = None,
    migrate: Annotated[
        Path | None, path_option("NEW", "Carry a ledger of a version before 0.3 over to this new file, and show that.")
    ] = None,
    plot: Annotated[
        Path | None,
        path_option("FILE", "Draw what the releases amount to as (ε, δ), each and all: .svg, .png or .pdf."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what was spent, on what, and what is left; the ledger's hash chain is verified first."""
    from batchdp.privacy import UNITS
    from batchdp.release.verify import check_ledger

    if create:
        either(epsilon, rho)
    elif epsilon is not None or rho is not None:
        raise typer.BadParameter("a budget is only set with --create", param_hint="--epsilon, --rho")
    if create and migrate is not None:
        raise typer.BadParameter("the new ledger has the total of the old one", param_hint="--create, --migrate")
    if create:
        books = batchdp.Ledger.create(ledger, epsilon=epsilon, rho=rho)
    elif migrate is None:
        books = open_ledger(ledger)
    else:
        books, ledger = batchdp.Ledger.migrate(ledger, migrate), migrate
    books.verify()
    check_ledger(books)
    history = books.history()
    if plot is not None:
        _draw(books, plot)
    if as_json:
        facts = {"ledger": str(ledger), "unit": books.unit, "total": books.total, "spent": books.spent}
        print_json({**facts, "remaining": books.remaining, "history": [asdict(entry) for entry in history]})
        return
    letter = UNITS[books.unit].letter
    if history:
        rows = (
            (
                entry.release_id,
                entry.table,
                entry.privacy_unit or "not recorded",
                entry.time[:19],
                entry.state,
                figure(entry.charged),
            )
            for entry in history
        )
        headings = ("release", "table", "privacy unit", "when (UTC)", "state", letter)
        console.print(table(str(ledger), headings, rows, texts=5, important=letter))
    say(f"{letter} = {figure(books.total)} in all, {figure(books.spent)} spent, {figure(books.remaining)} left.")


def _draw(ledger: batchdp.Ledger, plot: Path) -> None:
    from batchdp.archive import write_atomically

    check_output(plot, LedgerError, PICTURES, inputs=(ledger.path,))
    picture = BytesIO()
    ledger.plot_together().savefig(picture, format=plot.suffix.lower()[1:])
    write_atomically(plot, picture.getvalue(), LedgerError)
