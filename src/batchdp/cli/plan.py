"""`batchdp plan`."""

from __future__ import annotations

import math
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import batchdp
from batchdp.cli import files
from batchdp.cli.show import ROWS, Part, console, figure, parts, print_json, progress, say, say_rules, table
from batchdp.errors import AccuracyError, PlanError, StrategyError

if TYPE_CHECKING:
    from batchdp.domain import Domain
    from batchdp.plans import Plan
    from batchdp.plans.criteria import Criteria
    from batchdp.plans.outlook import Outlook


EXAMPLES = (
    "batchdp plan queries.sql --domain domain.toml -o visits.plan",
    "batchdp plan queries.sql -d domain.toml -o visits.plan --accuracy 25",
    "batchdp plan queries.sql -d domain.toml -o visits.plan --weight total=3",
    "batchdp plan queries.sql -d domain.toml -o visits.plan --assume mean=200",
    "batchdp plan queries.sql -d domain.toml -o visits.plan --accuracy wanted.toml",
    "batchdp plan queries.sql -d domain.toml -o visits.plan --privacy zcdp",
    "batchdp plan queries.sql -d domain.toml -o visits.plan --shape any",
    "batchdp plan more.sql -d domain.toml -o more.plan --given visits.release",
    "batchdp plan --marginals 2 -d domain.toml -o tables.plan --privacy zcdp",
    "batchdp plan -m 2 -d domain.toml -o t.plan --for-estimates --records 50000",
    "batchdp plan --for-records --records 50000 -d d.toml -o t.plan --privacy zcdp",
)
EVERY = "*"
"""Stands for all derived answers."""
Start = Annotated[
    datetime | None,
    typer.Option(
        "--from",
        help="Dates that are declared as a first day and months begin here instead.",
        metavar="DATE",
        formats=["%Y-%m-%d"],
    ),
]
UNEDITED = "# EDIT"
"""How `batchdp init` marks what it made up."""


class PrivacyChoice(StrEnum):
    """Kinds of privacy that can be asked for."""

    pure = "pure"
    zcdp = "zcdp"
    auto = "auto"


class ObjectiveChoice(StrEnum):
    """What can be made small."""

    fair = "fair"
    sum = "sum"
    max = "max"


def command(
    domain: Annotated[Path, files.path_option("DOMAIN.toml", "What is public about the table.", "--domain", "-d")],
    output: Annotated[Path, files.path_option("PLAN", "Where to write the plan.", "--output", "-o")],
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
    rho: files.ImplyingRho = None,
    accuracy: Annotated[
        str | None,
        typer.Option(
            help="Say which budget makes every answer this accurate, ± at 95 %; or a file of accuracies by name, for "
            "the plan that has them at the least budget.",
            metavar="A|FILE.toml",
        ),
    ] = None,
    privacy: Annotated[
        PrivacyChoice,
        typer.Option(help="Laplace noise (pure, takes ε), Gaussian noise (zcdp, takes ρ) or the better one."),
    ] = PrivacyChoice.pure,
    delta: Annotated[
        float | None, typer.Option(help="With ε: the δ at which Gaussian noise is shown and compared.", metavar="D")
    ] = None,
    objective: Annotated[
        ObjectiveChoice,
        typer.Option(help="Minimise every statement's error alike, the sum over all queries, or the largest."),
    ] = ObjectiveChoice.fair,
    given: files.Given = None,
    for_estimates: files.ForEstimates = False,
    for_records: files.ForRecords = False,
    records: files.Records = None,
    weight: files.Weight = None,
    assume: files.Assume = None,
    shape: files.Shape = files.ShapeChoice.pair,
    shape_rank: files.ShapeRank = 16,
    draw_seconds: files.DrawSeconds = 60.0,
    seconds: files.Seconds = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same plan.", metavar="N")] = 0,
    cache: Annotated[bool, typer.Option(help="Remember plans: the same batch is planned once.", metavar="")] = True,
    everything: files.All = False,
    verbose: files.Verbose = False,
    start: Start = None,
    releases: files.Releases = 1,
    as_json: files.AsJson = False,
) -> None:
    """Find out how to answer a batch of queries with the least noise; no data is read, nothing is spent."""
    from batchdp.plans.options import epsilon_of

    if queries is None and marginals is None and not for_records:
        raise typer.BadParameter("give QUERIES.sql, or --marginals K for all tables of up to K columns, or both")
    half_width, criteria = _accuracy(accuracy)
    inputs = (queries, domain, Path(str(accuracy)) if criteria else None, *(given or []))
    files.check_output(output, PlanError, inputs=inputs)
    limits = batchdp.ShapeLimits(rank=shape_rank, seconds=draw_seconds)
    search = {"privacy": privacy.value, "seconds": seconds, "seed": seed, "shape": shape.value, "limits": limits}
    weighed = {"given": _given(given), "for_estimates": for_estimates, "for_records": for_records, "records": records}
    asked = {"objective": objective.value, "weights": _numbered(weight or [], "--weight", "total=3"), **weighed}
    shown = {"epsilon": epsilon_of(privacy.value, epsilon, rho), "delta": delta, "cache": cache, "marginals": marginals}
    seen = {"accuracy": half_width, "assume": _numbered(assume or [], "--assume", "mean=1000", every=EVERY)}
    made, expected = _planned(queries, _moved(domain, start), criteria, search, asked, shown, seen)
    made.save(output)
    if as_json:
        print_json({**expected.as_dict(), "releases": releases, "total": float(releases * expected.exact)})
    else:
        _show(expected, made, queries, domain, everything=everything, verbose=verbose)
        say("\n".join([*expected.several(releases), f"Written to {output}."]))


def _given(releases: list[Path] | None) -> list[Any]:
    """The releases to plan on top of."""
    return [batchdp.load_release(files.find_release(one)) for one in releases or []]


def _moved(domain: Path, start: datetime | None) -> Path | Domain:
    """The domain, with its dates in months moved to another first day."""
    return domain if start is None else batchdp.load_domain(domain, start=start.date())


def _planned(
    queries: Path | None,
    domain: Path | Domain,
    criteria: Criteria | None,
    search: dict[str, Any],
    asked: dict[str, Any],
    shown: dict[str, Any],
    seen: dict[str, Any],
) -> tuple[Plan, Outlook]:
    """The plan and its outlook: for what is asked, or for the accuracies that are wanted."""
    from batchdp.plans.outlook import outlook

    epsilon, delta = shown["epsilon"], shown["delta"]
    with progress("Planning") as report:
        if criteria is None:
            made = batchdp.plan(queries, domain, **search, **asked, **shown, prove=True, progress=report)
        elif [asked.pop("objective"), *filter(None, asked.values())] != [ObjectiveChoice.fair.value]:
            raise AccuracyError(
                "--accuracy FILE finds the weights by itself; leave out --weight, --objective, --given, "
                "--for-estimates and --for-records"
            )
        else:
            made = batchdp.plan_for(queries, domain, criteria, marginals=shown["marginals"], **search, progress=report)
            epsilon, delta = _implying(made, epsilon), None
        return made, outlook(made, epsilon=epsilon, delta=delta, **seen)


def _show(
    expected: Outlook, made: Plan, queries: Path | None, domain: Path, *, everything: bool, verbose: bool
) -> None:
    """What is asked for with its errors, what matters about it, and what is still to be edited."""
    title = "all tables" if queries is None else str(queries)
    shown = expected_table(expected, title, everything=everything, in_parts=verbose)
    if shown.row_count:
        console().print(shown)
    if expected.derived:
        console().print(derived_table(expected))
    if verbose:
        console().print(statements_table(expected, everything=everything))
    if said := expected.summary() if verbose else expected.matters():
        say(said)
    say_rules(made.counted.sentences(made.domain.privacy.max_rows), verbose=verbose)
    if made.needed is not None:
        say(f"The accuracies that are wanted need {made.needed}; the errors above are at that budget.")
    made_up = domain.read_text(encoding="utf-8").count(UNEDITED)
    if made_up:
        say(f"Still to do: {made_up} lines in {domain} are marked EDIT. Correct them, delete the marks, plan again.")


def _accuracy(given: str | None) -> tuple[float | None, Criteria | None]:
    """A half width for every answer, or a file of accuracies by name."""
    from batchdp.errors import check_finite
    from batchdp.plans.criteria import load_criteria

    if given is None:
        return None, None
    try:
        number = float(given)
    except ValueError:
        return None, load_criteria(given)
    return check_finite("accuracy", number, above=0), None


def _numbered(given: list[str], option: str, example: str, *, every: str = "") -> dict[str, float]:
    """From NAME=N, or N alone where that is for `every` name; a name may hold = itself, as those of groups do."""
    found: dict[str, float] = {}
    for one in given:
        name, equals, number = one.rpartition("=")
        if every and not equals:
            name, equals = every, "="
        try:
            value = float(number)
        except ValueError:
            equals = ""
        if not equals or not name:
            raise StrategyError(f"{option} {one}: give a name and a number, such as {option} {example}")
        if name in found:
            raise StrategyError(f"{option} {one}: {name} has {found[name]:g} already; give it once")
        found[name] = value
    return found


def _implying(made: Plan, epsilon: float) -> float:
    """The ε that implies the budget that a plan needs: what its errors are shown for."""
    if made.needed is None:
        return epsilon
    norm = made.strategy.noise.norm
    return float((norm * float(made.needed)) ** (1 / norm))


def statements_table(expected: Outlook, *, everything: bool = False) -> Any:
    """Per statement: the expected standard error, that of answering it by itself, and the gain."""
    shown = expected.statements if everything else expected.statements[:ROWS]
    rows = (
        (
            f"{one.name}, a part" if one.part_of else one.name,
            f"{one.queries:,}",
            figure(one.standard_error),
            figure(one.by_itself),
            f"worse: {one.gained}" if one.is_worse else one.gained,
        )
        for one in shown
    )
    headings = ("statement", "queries", "standard error", "by itself", "gain")
    more = len(expected.statements) - len(shown)
    caption = (
        f"{expected.explained()} And {more:,} statements more; --all shows them." if more else expected.explained()
    )
    return table("Statements", headings, rows, caption, important="standard error")


def derived_table(expected: Outlook) -> Any:
    """Per derived answer: the size that its groups are assumed to have, and the margin that follows."""
    rows = (
        (
            one.name,
            f"{one.answers:,}",
            figure(one.size),
            "not determined" if math.isnan(one.half_width) else f"± {figure(one.half_width)}",
            one.bins,
        )
        for one in expected.derived
    )
    caption = (
        f"At {expected}. Averages and shares have about this margin at most, wherever in their range they lie; "
        "quantiles, if every bin holds as many records. --assume NAME=N assumes another size."
    )
    headings = ("derived", "answers", "records each", "margin at 95 %", "running totals over")
    return table("Derived answers, computed at no cost", headings, rows, caption, important="margin at 95 %")


def expected_table(expected: Outlook, title: str, *, everything: bool = False, in_parts: bool = True) -> Any:
    """Per table and query: the expected standard error and the baselines'; of derived answers, their parts'."""
    tables, more = expected.excerpt(everything=everything, in_parts=in_parts)
    found = [
        Part(
            None
            if one.single
            else (f"{one.title} ({one.rows_in_all:,})", f"median {figure(one.standard_error)}", "", ""),
            [
                (label, *map(figure, (row.standard_error, row.noise_on_data, row.noise_on_results)))
                for label, row in one.rows
            ],
            one.rows_in_all - len(one.rows),
        )
        for one in tables
    ]
    headings = ("query", "standard error", "noise on data", "noise on results")
    return parts(title, headings, found, expected.caption(), important="standard error", more=more)
