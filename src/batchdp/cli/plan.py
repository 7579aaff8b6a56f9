"""`batchdp plan`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from batchdp.cli.options import AsJson

if TYPE_CHECKING:
    from batchdp.release.outlook import Outlook

EXAMPLES = (
    "batchdp plan queries.sql --domain domain.toml -o patients.plan",
    "batchdp plan queries.sql -d domain.toml -o patients.plan --epsilon 0.5 --accuracy 25",
)


def command(
    queries: Annotated[Path, typer.Argument(metavar="QUERIES.sql", help="SELECT statements over one table.")],
    domain: Annotated[Path, typer.Option("--domain", "-d", help="What is public about the table (TOML).")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write the plan.")],
    epsilon: Annotated[float, typer.Option("--epsilon", "-e", help="The budget that errors are shown for.")] = 1.0,
    accuracy: Annotated[
        float | None, typer.Option(help="Say which budget makes every answer this accurate (± at 95 %).")
    ] = None,
    privacy: Annotated[str, typer.Option(help='"pure" (Laplace), "zcdp" (Gaussian) or "auto".')] = "pure",
    delta: Annotated[float | None, typer.Option(help='The δ at which "auto" compares.')] = None,
    objective: Annotated[str, typer.Option(help='Make the "sum" or the "max" of squared errors small.')] = "sum",
    seconds: Annotated[
        float | None, typer.Option(help="Time to look for a strategy; follows the size if left out.")
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same plan.")] = 0,
    cache: Annotated[bool, typer.Option(help="Remember plans, so that the same batch is planned once.")] = True,
    as_json: AsJson = False,
) -> None:
    """Find the strategy with the least noise for a batch of queries; no data is read, nothing is spent."""
    from batchdp.cli.files import checked_output
    from batchdp.cli.show import console, print_json, progress
    from batchdp.errors import PlanError
    from batchdp.plans import plan
    from batchdp.release.outlook import outlook

    checked_output(output, PlanError)
    options: dict[str, Any] = {"privacy": privacy, "objective": objective}
    with progress("Planning") as report:
        made = plan(
            queries,
            domain,
            **options,
            seconds=seconds,
            seed=seed,
            epsilon=epsilon,
            delta=delta,
            cache=cache,
            progress=report,
        )
        expected = outlook(made, epsilon=epsilon, accuracy=accuracy)
    made.save(output)
    if as_json:
        print_json(expected.as_dict())
    else:
        console.print(expected_table(expected, str(queries)))
        console.print(expected.summary(), soft_wrap=True, markup=False, highlight=False)
        console.print(f"Written to {output}.", soft_wrap=True, markup=False, highlight=False)


def expected_table(expected: Outlook, title: str) -> Any:
    """Per query: the expected standard error, the baselines' and the gain."""
    from batchdp.cli.show import figure, table

    rows = (
        (
            row.name,
            figure(row.standard_error),
            figure(row.noise_on_data),
            figure(row.noise_on_results),
            f"{row.gain:.1f}×",
        )
        for row in expected.queries
    )
    headings = ("query", "standard error", "noise on data", "noise on results", "gain")
    return table(title, headings, rows, f"Expected standard errors at {expected.budget}.")
