"""`batchdp demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from batchdp.cli.show import Part, console, figure, parts, progress, say
from batchdp.text import full_title

EXAMPLES = ("batchdp demo", "batchdp demo --folder somewhere")


def command(
    folder: Annotated[Path, typer.Option(help="Where the files go.", metavar="FOLDER", readable=False)] = Path(
        "batchdp-demo"
    ),
) -> None:
    """Do the whole job on invented patient records with an embedded database, in seconds."""
    from batchdp.cli.example import RECORDS, demonstrate
    from batchdp.plans.outlook import outlook
    from batchdp.queries.query import QUERY, tables_of

    with progress("Starting") as report:
        done = demonstrate(folder, lambda text: say(f"• {text}"), report)
        expected = outlook(done.plan)
    one, tenth = done.releases
    pairs = zip(done.plan.statements, expected.statements, strict=True)
    gained = {q: seen.gained for statement, seen in pairs for q in statement.queries}
    found = []
    for own in tables_of(one.names):
        single = own.columns == (QUERY,)
        rows = [
            (
                label,
                figure(float(done.truth[q])),
                *(f"{figure(a.value)} ± {figure((a.high - a.low) / 2)}" for a in (one.answers[q], tenth.answers[q])),
                gained[q] if single else "",
            )
            for label, q in zip(own.labels, own.answers, strict=True)
        ]
        heading = (f"{full_title(own.name, own.columns)} ({len(rows)})", "", "", "", gained[own.answers[0]])
        found.append(Part(None if single else heading, rows))
    headings = ("query", "truth", "private, ε = 1", "private, ε = 0.1", "gain")
    caption = (
        f"± is a 95 % interval. {expected.explained()} The truth is shown only because these records are invented."
    )
    title = f"{len(one.answers)} queries about {RECORDS:,} patients"
    console().print(parts(title, headings, found, caption, important="private, ε = 1"))
    say(expected.summary())
    ledger = done.ledger
    say(
        f"Budget: ε = {figure(ledger.spent)} of {figure(ledger.total)} spent, {figure(ledger.remaining)} left.\n\n"
        "What to try next:\n"
        f"  open {done.folder / 'report.html'} in a browser\n"
        f"  batchdp budget {done.folder / 'budget.db'}\n"
        f"  batchdp audit {done.folder / 'patients.plan'}\n"
        f"  batchdp dossier {done.folder / 'answers-1.release'} -l {done.folder / 'budget.db'} -o publication\n"
        "  batchdp init YOUR.csv        a domain and a query file for your own table"
    )
