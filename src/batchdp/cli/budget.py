"""`batchdp budget`."""

from __future__ import annotations

from dataclasses import asdict
from decimal import Decimal, InvalidOperation
from io import BytesIO
from pathlib import Path
from typing import Annotated, Any

import typer

import batchdp
from batchdp.cli.files import AsJson, Delta, Epsilon, Rho, check_output, either, open_ledger, path_argument, path_option
from batchdp.cli.show import console, figure, print_json, say, table
from batchdp.errors import LedgerError

EXAMPLES = (
    "batchdp budget budget.db --create --epsilon 3",
    "batchdp budget budget.db --create --epsilon 1 --delta 1e-6",
    "batchdp budget budget.db --share teamA=0.4",
    "batchdp budget budget.db",
    "batchdp budget budget.db --plot together.svg",
    "batchdp budget old.db --migrate budget.db",
    "batchdp budget rho.db --migrate budget.db --delta 1e-6",
)
PICTURES = (".svg", ".png", ".pdf")
FILTERS = {"epsilon": "Pure noise alone", "mu2": "Gaussian noise alone", "rho": "Both kinds together"}
CHOOSING_DELTA = "δ is the chance that the promise fails for someone: keep it far below one over the number of people."


def command(
    ledger: Annotated[Path, path_argument("LEDGER", "The ledger's file.")],
    create: Annotated[bool, typer.Option("--create", help="Start a ledger with this budget.", metavar="")] = False,
    epsilon: Epsilon = None,
    rho: Rho = None,
    delta: Delta = None,
    gaussian: Annotated[
        float | None,
        typer.Option(help="The part of the rest of δ for Gaussian noise alone; 0.999 if left out.", metavar="PART"),
    ] = None,
    thresholds: Annotated[
        float | None,
        typer.Option(help="The part of δ that is kept for values of texts that `discover` finds.", metavar="PART"),
    ] = None,
    neighbours: Annotated[
        str | None,
        typer.Option(help="The relation of all releases, add-remove or replace; else the first decides.", metavar="R"),
    ] = None,
    share: Annotated[
        list[str] | None,
        typer.Option(
            help="Give a share of the total to a team, or change it; can be given several times.", metavar="NAME=N"
        ),
    ] = None,
    migrate: Annotated[
        Path | None,
        path_option("NEW", "Carry a ledger of a version before 0.3 over to this new file; with --delta, into (ε, δ)."),
    ] = None,
    plot: Annotated[
        Path | None,
        path_option(
            "FILE", "Draw what the releases amount to as (ε, δ), each alone and all together: .svg, .png or .pdf."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what was spent, on what, and what is left; the ledger's hash chain is verified first."""
    from batchdp.release.verify import check_ledger

    if create:
        either(epsilon, rho, delta)
    elif epsilon is not None or rho is not None or (migrate is None and delta is not None):
        raise typer.BadParameter("a budget is only set with --create", param_hint="--epsilon, --rho, --delta")
    elif gaussian is not None or thresholds is not None or neighbours is not None:
        raise typer.BadParameter("is only set with --create", param_hint="--gaussian, --thresholds, --neighbours")
    if create and migrate is not None:
        raise typer.BadParameter("the new ledger has the total of the old one", param_hint="--create, --migrate")
    if create:
        made: dict[str, Any] = {"delta": delta, "gaussian": gaussian, "thresholds": thresholds}
        made["neighbours"] = neighbours
        books = batchdp.Ledger.create(ledger, epsilon=epsilon, rho=rho, **made)
    elif migrate is None:
        books = open_ledger(ledger)
    else:
        books, ledger = batchdp.Ledger.migrate(ledger, migrate, delta=delta), migrate
    books.verify()
    check_ledger(books)
    for one in share or ():
        books.share(*_read_share(one))
    if plot is not None:
        _draw(books, plot)
    if as_json:
        facts = {"ledger": str(ledger), "unit": books.unit, "delta": books.delta, "total": books.total}
        left = {"spent": books.spent, "remaining": books.remaining, "filters": _filters(books), "shares": books.shares}
        print_json({**facts, **left, "history": [asdict(entry) for entry in books.history()]})
        return
    _show(books, str(ledger))


def _show(books: batchdp.Ledger, name: str) -> None:
    """Every spend in a table, then what is left in all, in every currency and in every share."""
    from batchdp.privacy import LETTERS

    now = books.standing()
    letter = LETTERS[now.unit]
    if now.entries:
        dated = any(entry.snapshot for entry in now.entries)
        rows = (
            (
                entry.release_id,
                entry.table,
                *([entry.snapshot or ""] if dated else []),
                entry.privacy_unit or "not recorded",
                entry.time[:19],
                entry.state,
                figure(entry.charged),
            )
            for entry in now.entries
        )
        own = ("table", "snapshot") if dated else ("table",)
        headings = ("release", *own, "privacy unit", "when (UTC)", "state", letter)
        console().print(table(name, headings, rows, texts=len(headings) - 1, important=letter))
    say(f"{letter} = {figure(now.total)} in all, {figure(now.spent)} spent, {figure(now.remaining)} left.")
    if books.delta is not None:
        say(f"All of it keeps {now.promise}. {CHOOSING_DELTA}")
        for unit, kept in _filters(books).items():
            left = "closed" if kept["left"] is None else f"{figure(kept['left'])} left"
            say(f"{FILTERS[unit]}: {LETTERS[unit]} = {figure(kept['total'] or 0.0)} in all, {left}.")
        account = books.account
        if account.thresholds:
            of = f"δ = {float(account.thresholds):g} in all, {float(account.delta_left()):g} left"
            say(f"Values found in texts: {of}.")
    for share, (part, spent, rest) in books.shares.items():
        of = f"{LETTERS[books.unit]} = {figure(part)} of {figure(books.total)}"
        say(f"Share {share}: {of}; {letter} = {figure(spent)} spent, {figure(rest)} left.")
    if now.entries:
        say(_amounts_to(books))


def _read_share(given: str) -> tuple[str, Decimal]:
    """A name and an amount, exactly as it is written."""
    name, equals, amount = given.rpartition("=")
    try:
        number = Decimal(amount)
    except InvalidOperation:
        number = Decimal("NaN")
    if not equals or not name or not number.is_finite():
        raise typer.BadParameter(f"{given!r} is not a name and an amount, such as teamA=0.4", param_hint="--share")
    return name, number


def _filters(books: batchdp.Ledger) -> dict[str, dict[str, float | None]]:
    """What each currency of the ledger may add up to, and what is left of it; None where it has closed."""
    account = books.account
    sums = ((unit, one.total, account.sum(unit)) for unit, one in account.filters.items())
    is_open = account.admitting
    return {
        unit: {"total": float(total), "left": float(total - spent) if spent is not None and unit in is_open else None}
        for unit, total, spent in sums
    }


def _amounts_to(books: batchdp.Ledger) -> str:
    """Everything spent so far in every currency that it has."""
    from batchdp.ledger.books import together
    from batchdp.mechanism.conversion import describe_guarantee

    amounts, found = together(books.history())
    return f"So far: {describe_guarantee(amounts, 1e-6 if books.delta is None else books.delta, found)}."


def _draw(ledger: batchdp.Ledger, plot: Path) -> None:
    from batchdp.archive import write_atomically

    check_output(plot, LedgerError, PICTURES, inputs=(ledger.path,))
    picture = BytesIO()
    ledger.plot_together().savefig(picture, format=plot.suffix.lower()[1:])
    write_atomically(plot, picture.getvalue(), LedgerError)
