"""The verdicts on the paper's claims, from invented results: which comes out when, and that it comes with a reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import nan
from typing import Any

from reproduction.claims import CLAIMS
from reproduction.findings import Findings
from reproduction.journal import Row, row_for
from reproduction.points import Batch, Point, Task
from reproduction.verdicts import cells, program, queries
from reproduction.verdicts.judging import FAILS, HOLDS, IN_PART, UNKNOWN, Judgement


def row(figure: str, workload: str, mechanism: str, error: float, **more: Any) -> Row:
    """An invented result."""
    shape = {"m": 256, "n": 1024, "s": 0, "ratio": 0.0, "gamma": 0.0, "epsilon": 0.1, "seconds": 1.0, **more}
    task = Task(Batch(shape["n"], shape["m"], workload, shape["s"]), mechanism, shape["ratio"], shape["gamma"])
    figures = {"error": error, "noise": shape.get("noise", error), "structural": 0.0, "seconds": shape["seconds"]}
    return row_for(Point(figure, task, "Search Logs", shape["epsilon"]), {**figures, "status": "converged"})


def curves(figure: str, workload: str, along: str, **errors: dict[int, float]) -> list[Row]:
    names = {"printed": "LRM-printed"}
    return [
        row(figure, workload, names.get(name, name), error, **{along: at})
        for name, curve in errors.items()
        for at, error in curve.items()
    ]


def verdict(judge: Callable[[Findings], Judgement], rows: list[Row]) -> str:
    return judge(Findings(rows)).verdict


def test_without_results_nothing_is_judged() -> None:
    for claim in CLAIMS:
        assert claim.judge(Findings([])) == Judgement(UNKNOWN), claim.words
    skipped = [replace(row("figure-5", "WRange", "LM", 1.0), error=nan, limit=1.0)]
    assert all(claim.judge(Findings(skipped)).verdict == UNKNOWN for claim in CLAIMS)


def test_failed_searches_are_not_judged() -> None:
    rows = curves("figure-5", "WRange", "n", LM={512: 9}, WM={512: 9}, HM={512: 9}, LRM={512: 100})
    assert verdict(cells.low_rank_wins_on_ranges, rows) == FAILS
    rows[-1] = replace(rows[-1], status="fell back to its start")
    assert verdict(cells.low_rank_wins_on_ranges, rows) == UNKNOWN


def test_claims_about_relaxation_and_budget() -> None:
    def rows(errors: dict[tuple[float, float], float]) -> list[Row]:
        return [
            row("figure-2", "WRange", "LRM", error, gamma=gamma, epsilon=epsilon, ratio=1.2, seconds=1 / gamma)
            for (gamma, epsilon), error in errors.items()
        ]

    steady = rows({(0.1, 1.0): 1, (10, 1.0): 1.1, (0.1, 0.1): 100, (10, 0.1): 110})
    assert verdict(program.insensitive_to_relaxation, steady) == HOLDS
    assert verdict(program.quadratic_in_budget, steady) == HOLDS
    assert verdict(program.faster_with_relaxation, steady) == HOLDS
    structural = rows({(0.1, 1.0): 1, (10, 1.0): 501, (0.1, 0.1): 100, (10, 0.1): 610})
    assert verdict(program.insensitive_to_relaxation, structural) == FAILS
    assert verdict(program.quadratic_in_budget, structural) == IN_PART
    assert verdict(program.faster_with_relaxation, [replace(one, seconds=1.0) for one in steady]) == FAILS
    sooner = rows({(0.1, 1.0): 1, (1, 1.0): 1.1, (10, 1.0): 5, (0.1, 0.1): 100, (1, 0.1): 100, (10, 0.1): 101})
    judgement = program.insensitive_to_relaxation(Findings(sooner))
    assert judgement.verdict == IN_PART
    assert "up to γ = 10 at ε = 0.1, γ = 1 at ε = 1;" in judgement.measured


def test_claims_about_the_rank() -> None:
    def rows(errors: dict[float, float], seconds: Callable[[float], float]) -> list[Row]:
        return [row("figure-3", "WRange", "LRM", e, ratio=r, seconds=seconds(r)) for r, e in errors.items()]

    good = rows({0.8: 900, 1.0: 12, 1.2: 10, 2.0: 10.5, 3.0: 10, 4.0: 10}, lambda r: 2.0 ** (3 * r))
    assert verdict(program.poor_below_the_rank, good) == HOLDS
    assert verdict(program.stable_above_the_rank, good) == HOLDS
    assert verdict(program.exponential_time, good) == HOLDS
    bad = rows({0.8: 11, 1.0: 12, 1.2: 10, 2.0: 20, 3.0: 5, 4.0: 5}, lambda r: r**2)
    assert verdict(program.poor_below_the_rank, bad) == FAILS
    assert verdict(program.stable_above_the_rank, bad) == FAILS
    assert verdict(program.exponential_time, bad) == FAILS


def test_claims_about_the_matrix_mechanism() -> None:
    known = {"WM": {128: 50.0}, "HM": {128: 60.0}, "LRM": {128: 5.0}}
    worst = curves("figure-4", "WDiscrete", "n", LM={128: 10}, MM={128: 70}, **known)
    assert verdict(cells.matrix_mechanism_is_worst, worst) == HOLDS
    assert verdict(cells.matrix_mechanism_never_beats_noise_on_data, worst) == HOLDS
    better = curves("figure-4", "WDiscrete", "n", LM={128: 10}, MM={128: 9}, **known)
    assert verdict(cells.matrix_mechanism_is_worst, better) == FAILS
    assert verdict(cells.matrix_mechanism_never_beats_noise_on_data, better) == FAILS


def test_claims_about_discrete_workloads() -> None:
    plain = {"WM": {128: 20.0}, "HM": {128: 30.0}, "MM": {128: 40.0}}
    small = curves("figure-4", "WDiscrete", "n", LM={128: 10}, LRM={128: 12}, **plain)
    assert verdict(cells.noise_on_data_wins_small, small) == HOLDS
    better = [*small, *curves("figure-4", "WDiscrete", "n", printed={128: 9})]  # the better algorithm counts
    assert verdict(cells.noise_on_data_wins_small, better) == IN_PART
    growing = {512: 10.0, 1024: 20.0, 2048: 40.0}
    flat = curves("figure-4", "WDiscrete", "n", LM=growing, LRM={128: 1, 512: 10, 1024: 10, 2048: 10.5})
    assert verdict(cells.low_rank_stops_growing, flat) == HOLDS
    assert verdict(cells.low_rank_stops_growing, curves("figure-4", "WDiscrete", "n", LM=growing, LRM=growing)) == FAILS


def test_claims_about_sizes_that_a_run_lacks_are_not_judged() -> None:
    small = {"LM": {256: 5.0}, "WM": {256: 9.0}, "HM": {256: 9.0}, "LRM": {256: 4.0}, "bound": {256: 1.0}}
    for judge, figure, along in (
        (cells.synopses_win_on_ranges, "figure-5", "n"),
        (cells.two_orders_on_related, "figure-6", "n"),
        (queries.wavelets_win_with_many_queries, "figure-7", "m"),
    ):
        judgement = judge(Findings(curves(figure, "WRange", along, **small)))
        assert judgement == Judgement(UNKNOWN, f"this run ends at {along} = 256")
    ranks = [replace(one, n=128) for one in curves("figure-9", "WRelated", "s", **small)]
    assert queries.two_orders_at_low_rank(Findings(ranks)) == Judgement(UNKNOWN, "this run has n = 128")


def test_every_claim_says_why_whatever_its_verdict() -> None:
    for claim in CLAIMS:
        assert claim.reason(UNKNOWN) == ""
        assert all(claim.reason(verdict).endswith(".") for verdict in (HOLDS, IN_PART, FAILS)), claim.words


def test_claims_about_powers() -> None:
    linear, quadratic = {128: 1.0, 256: 2.0, 512: 4.0}, {128: 1.0, 256: 4.0, 512: 16.0}
    assert verdict(cells.others_linear_in_cells, curves("figure-4", "WDiscrete", "n", LM=linear, WM=linear)) == HOLDS
    assert verdict(cells.others_linear_in_cells, curves("figure-4", "WDiscrete", "n", HM=quadratic)) == FAILS
    flat = dict.fromkeys(linear, 1.0)
    assert verdict(queries.linear_in_rank, curves("figure-9", "WRelated", "s", LM=flat, LRM=linear)) == HOLDS
    growing = curves("figure-9", "WRelated", "s", LM=linear, LRM=quadratic)  # as ‖W‖² does
    assert verdict(queries.linear_in_rank, growing) == IN_PART
    assert verdict(queries.linear_in_rank, curves("figure-9", "WRelated", "s", LM=linear, LRM=linear)) == IN_PART
    assert verdict(queries.linear_in_rank, curves("figure-9", "WRelated", "s", LM=flat, LRM=flat)) == FAILS


def test_claims_about_convergence() -> None:
    def found(low_rank: dict[int, float]) -> str:
        rows = curves("figure-7", "WRange", "m", **{name: {64: 9.0, 1024: 9.0} for name in ("LM", "WM", "HM")})
        return verdict(queries.errors_converge_with_queries, [*rows, *curves("figure-7", "WRange", "m", LRM=low_rank)])

    assert found({64: 1, 1024: 8}) == HOLDS
    assert found({64: 1, 1024: 3}) == IN_PART
    assert found({64: 1, 1024: 1}) == FAILS


def test_claims_about_ranges() -> None:
    found = curves(
        "figure-5", "WRange", "n", LM={256: 1, 512: 20}, WM={256: 9, 512: 9}, HM={256: 9, 512: 10}, LRM={512: 4}
    )
    assert verdict(cells.synopses_win_on_ranges, found) == HOLDS
    assert verdict(cells.low_rank_wins_on_ranges, found) == HOLDS
    found = curves("figure-5", "WRange", "n", LM={512: 20}, WM={512: 9}, HM={512: 30}, LRM={512: 8})
    assert verdict(cells.synopses_win_on_ranges, found) == IN_PART
    assert verdict(cells.low_rank_wins_on_ranges, found) == FAILS
    found = curves("figure-7", "WRange", "m", LM={64: 20, 1024: 20}, WM={64: 9, 1024: 9}, HM={64: 9, 1024: 9})
    assert verdict(queries.wavelets_win_with_many_queries, found) == UNKNOWN
    assert "LRM was not finished" in queries.wavelets_win_with_many_queries(Findings(found)).measured
    found += curves("figure-7", "WRange", "m", LRM={64: 1, 1024: 8})
    assert verdict(queries.wavelets_win_with_many_queries, found) == IN_PART  # nearly the best
    assert (
        verdict(queries.wavelets_win_with_many_queries, [*found, *curves("figure-7", "WRange", "m", printed={1024: 4})])
        == FAILS
    )
    assert verdict(queries.low_rank_wins_with_few_queries, found) == HOLDS


def test_claims_about_related_workloads() -> None:
    rivals = {"LM": {128: 10.0, 8192: 1e6}, "WM": {128: 90.0, 8192: 1e7}, "HM": {128: 90.0, 8192: 1e8}}
    vast = curves("figure-6", "WRelated", "n", LRM={128: 5, 8192: 1e3}, bound={8192: 1e2}, **rivals)
    assert verdict(cells.low_rank_wins_on_related, vast) == HOLDS
    assert verdict(cells.two_orders_on_related, vast) == HOLDS
    impossible = curves("figure-6", "WRelated", "n", bound={8192: 5e4}, **rivals)
    judgement = cells.two_orders_on_related(Findings(impossible))
    assert judgement.verdict == FAILS  # whatever LRM would have reached
    assert "more than 20 times below" in judgement.measured
    small = curves("figure-6", "WRelated", "n", LRM={128: 50, 8192: 4e5}, bound={8192: 5e4}, **rivals)
    assert verdict(cells.low_rank_wins_on_related, small) == IN_PART
    assert verdict(cells.two_orders_on_related, small) == IN_PART  # against the worst rival only
    open_yet = curves("figure-6", "WRelated", "n", bound={8192: 5e2}, **rivals)
    assert verdict(cells.two_orders_on_related, open_yet) == UNKNOWN
    found = curves("figure-8", "WRelated", "m", LM={64: 9}, WM={64: 9}, HM={64: 9}, LRM={64: 5})
    assert verdict(queries.low_rank_wins_for_any_queries, found) == FAILS
    assert verdict(queries.consistently_better, [*found, *small]) == IN_PART


def test_claims_about_the_rank_of_related_workloads() -> None:
    same = dict.fromkeys((26, 256), 1000.0)
    paper = curves("figure-9", "WRelated", "s", LM=same, WM=same, HM=same, LRM={26: 1, 256: 900})
    for judge in (queries.two_orders_at_low_rank, queries.others_stable_in_rank, queries.low_rank_grows_with_rank):
        assert verdict(judge, paper) == HOLDS
    rising = {26: 100.0, 256: 1000.0}
    other = curves("figure-9", "WRelated", "s", LM=rising, WM=rising, HM=rising, LRM=rising, bound=rising)
    for judge in (queries.two_orders_at_low_rank, queries.others_stable_in_rank, queries.low_rank_grows_with_rank):
        assert verdict(judge, other) == FAILS
