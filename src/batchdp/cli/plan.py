"""`batchdp plan`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from batchdp.cli.options import All, AsJson

if TYPE_CHECKING:
    from batchdp.plans.outlook import Outlook
    from batchdp.plans.tabled_outlook import TableOutlook

EXAMPLES = (
    "batchdp plan queries.sql --domain domain.toml -o visits.plan",
    "batchdp plan queries.sql -d domain.toml -o visits.plan --accuracy 25",
    "batchdp plan queries.sql -d domain.toml -o visits.plan --privacy zcdp",
    "batchdp plan --marginals 2 -d domain.toml -o tables.plan --privacy zcdp",
)
UNEDITED = "# EDIT"
"""How `batchdp init` marks what it made up."""


class PrivacyChoice(StrEnum):
    """Kinds of privacy that can be asked for."""

    pure = "pure"
    zcdp = "zcdp"
    auto = "auto"


class ObjectiveChoice(StrEnum):
    """What can be made small."""

    sum = "sum"
    max = "max"


def command(
    domain: Annotated[
        Path,
        typer.Option("--domain", "-d", help="What is public about the table.", metavar="DOMAIN.toml", readable=False),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Where to write the plan.", metavar="PLAN", readable=False)
    ],
    queries: Annotated[
        Path | None,
        typer.Argument(
            metavar="[QUERIES.sql]",
            help="SELECT statements over one table; not needed with --marginals.",
            readable=False,
            show_default=False,
        ),
    ] = None,
    marginals: Annotated[
        int | None,
        typer.Option("--marginals", "-m", help="All tables of up to K of the domain's columns.", metavar="K"),
    ] = None,
    epsilon: Annotated[
        float, typer.Option("--epsilon", "-e", help="The budget that errors are shown for.", metavar="E")
    ] = 1.0,
    accuracy: Annotated[
        float | None, typer.Option(help="Say which budget makes every answer this accurate, ± at 95 %.", metavar="A")
    ] = None,
    privacy: Annotated[
        PrivacyChoice,
        typer.Option(help="Laplace noise (pure, takes ε), Gaussian noise (zcdp, takes ρ) or the better one."),
    ] = PrivacyChoice.pure,
    delta: Annotated[float | None, typer.Option(help="The δ at which --privacy auto compares.", metavar="D")] = None,
    objective: Annotated[
        ObjectiveChoice, typer.Option(help="Which of the squared errors to make small.")
    ] = ObjectiveChoice.sum,
    seconds: Annotated[
        float | None, typer.Option(help="Time to look for a strategy; by the batch's size if left out.", metavar="S")
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same plan.", metavar="N")] = 0,
    cache: Annotated[bool, typer.Option(help="Remember plans: the same batch is planned once.", metavar="")] = True,
    everything: All = False,
    as_json: AsJson = False,
) -> None:
    """Find out how to answer a batch of queries with the least noise; no data is read, nothing is spent."""
    from batchdp.checks import finite
    from batchdp.cli.files import checked_output
    from batchdp.cli.show import print_json, progress, say
    from batchdp.errors import PlanError
    from batchdp.plans import plan
    from batchdp.plans.outlook import outlook

    if queries is None and marginals is None:
        raise typer.BadParameter("give QUERIES.sql, or --marginals K for all tables of up to K columns, or both")
    checked_output(output, PlanError, inputs=(queries, domain))
    if accuracy is not None:
        finite("accuracy", accuracy, above=0)
    options: dict[str, Any] = {"privacy": privacy.value, "objective": objective.value}
    asked: dict[str, Any] = {"sql": queries, "domain": domain, "marginals": marginals}
    with progress("Planning") as report:
        made: Any = plan(
            **asked,
            **options,
            seconds=seconds,
            seed=seed,
            epsilon=epsilon,
            delta=delta,
            cache=cache,
            prove=True,
            progress=report,
        )
        expected = outlook(made, epsilon=epsilon, accuracy=accuracy)
    made.save(output)
    if as_json:
        print_json(expected.as_dict())
    else:
        _show(expected, "all tables" if queries is None else str(queries), domain, everything=everything)
        say(f"Written to {output}.")


def _show(expected: Outlook | TableOutlook, title: str, domain: Path, *, everything: bool) -> None:
    """The figures, what they say in all, and what is still to be edited."""
    from batchdp.cli.show import console, say
    from batchdp.plans.tabled_outlook import TableOutlook

    if isinstance(expected, TableOutlook):
        console.print(expected_tables(expected, title, everything=everything))
    else:
        console.print(expected_table(expected, title, everything=everything))
    say(expected.summary())
    made_up = domain.read_text(encoding="utf-8").count(UNEDITED)
    if made_up:
        say(f"Still to do: {made_up} lines in {domain} are marked EDIT. Correct them, delete the marks, plan again.")


def expected_table(expected: Outlook, title: str, *, everything: bool = False) -> Any:
    """Per table and query: the expected standard error, the baselines' and the gain."""
    from batchdp.cli.show import Part, figure, parts

    tables, more = expected.tables(everything=everything)
    found = [
        Part(
            None
            if one.single
            else (
                f"{one.title} ({one.queries:,})",
                f"median {figure(one.standard_error)}",
                "",
                "",
                f"{one.gain:.1f}×",
            ),
            [
                (
                    label,
                    figure(row.standard_error),
                    figure(row.noise_on_data),
                    figure(row.noise_on_results),
                    f"{row.gain:.1f}×",
                )
                for label, row in one.rows
            ],
            one.queries - len(one.rows),
        )
        for one in tables
    ]
    headings = ("query", "standard error", "noise on data", "noise on results", "gain")
    return parts(title, headings, found, expected.caption(), important="standard error", more=more)


def expected_tables(expected: TableOutlook, title: str, *, everything: bool = False) -> Any:
    """Per table: how many answers, the typical standard error, the baselines' and the gain."""
    from batchdp.cli.show import ROWS, figure, table

    shown = expected.tables if everything else expected.tables[:ROWS]
    rows = (
        (
            row.name,
            f"{row.answers:,}",
            figure(row.standard_error),
            figure(row.noise_on_data),
            figure(row.noise_on_results),
            f"{row.gain:.1f}×",
        )
        for row in shown
    )
    headings = ("table", "answers", "standard error", "noise on data", "noise on results", "gain")
    more = len(expected.tables) - len(shown)
    caption = f"{expected.caption()} And {more:,} tables more; --all shows them." if more else expected.caption()
    return table(title, headings, rows, caption, important="standard error")
