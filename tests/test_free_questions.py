"""Questions that follow from a release are answered, free, and no others: held against rank over every record."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pytest

from batchdp import Ledger, QueryError, Release, ReleaseError, answer, load_release, plan
from batchdp.mechanism.prepare import prepare
from batchdp.mechanism.sample import sample
from batchdp.plans.planned import declared_neighbours
from batchdp.privacy import Budget
from batchdp.release.following import follow
from batchdp.sql.script import batch_of, read_selections
from commands import make_study, run, succeeds, unchanged
from test_combining import BY_SEX, JOINED, OFTEN, PERSONS, SEVERAL, books, of_several, planned

DOMAIN: dict[str, Any] = {
    "table": "visits",
    "columns": {
        "state": {"values": ["NY", "NJ", "CA"], "other": "drop"},
        "ill": {"values": ["yes", "no"], "other": "drop"},
        "children": {"integers": [0, 3], "bins": [0, 1, 2, 3], "other": "drop"},
        "clinic": {"values": ["n", "s", "e", "w"], "other": "drop"},
    },
}
VALUES: dict[str, list[Any]] = {
    "state": ["NY", "NJ", "CA"],
    "ill": ["yes", "no"],
    "children": [0, 1, 2, 3],
    "clinic": list("nsew"),
}
EVERY = [dict(zip(VALUES, record, strict=True)) for record in product(*VALUES.values())]
"""Every record that there can be."""
BUDGETS: dict[str, dict[str, float]] = {"pure": {"epsilon": 1.0}, "zcdp": {"rho": 0.5}}
Holds = Callable[[dict[str, Any]], float]


def released(made: Any, folder: Path, table: Any = None, name: str = "budget.db", **budget: float) -> Release:
    """Of random records unless others are given, read from its file."""
    rng = np.random.default_rng(0)
    given = pd.DataFrame({c: rng.choice(np.array(own, dtype=object), 500) for c, own in VALUES.items()})
    own = budget or BUDGETS[made.privacy]
    ledger = Ledger.create(folder / name, **own)  # type: ignore[arg-type]
    answer(made, given if table is None else table, **own, ledger=ledger).save(folder / "r")  # type: ignore[arg-type]
    return load_release(folder / "r")


def one_way(rng: np.random.Generator, column: str) -> tuple[str, Holds]:
    """A condition on a column, as SQL and as a function."""
    some = [v for v in VALUES[column] if rng.random() < 0.5] or VALUES[column][:1]
    listed = ", ".join(repr(v) for v in some)
    return f"{column} IN ({listed})", lambda record: float(record[column] in some)


def statement(rng: np.random.Generator) -> tuple[str, Holds]:
    """A count or sum under conditions on up to four columns, joined by AND, OR, NOT, or added up."""
    columns = list(rng.permutation(list(VALUES)))[: int(rng.integers(2, 5))]
    parts = [one_way(rng, column) for column in columns]
    texts, holds = [text for text, _ in parts], [hold for _, hold in parts]
    kind = int(rng.choice(4, p=[0.4, 0.3, 0.1, 0.2]))
    if kind == 0:
        return f"COUNT(*) FILTER (WHERE {' AND '.join(texts)})", lambda r: float(all(h(r) for h in holds))
    if kind == 1:
        return f"COUNT(*) FILTER (WHERE NOT ({' OR '.join(texts)}))", lambda r: float(not any(h(r) for h in holds))
    if kind == 2:
        return f"SUM(children) FILTER (WHERE {texts[0]})", lambda r: r["children"] * holds[0](r)
    # Pairs of neighbouring conditions: what looks at three columns may still be a sum of what looks at two.
    pairs = list(zip(parts, parts[1:] or parts, strict=False))
    counts = " + ".join(f"COUNT(*) FILTER (WHERE {a} AND {b})" for (a, _), (b, _) in pairs)
    return counts, lambda r: sum(f(r) * g(r) for (_, f), (_, g) in pairs)


def two_way() -> np.ndarray[Any, Any]:
    """All tables of up to two columns, over every record: a measurement a row."""
    rows = [np.ones(len(EVERY))]
    for i, a in enumerate(VALUES):
        for b in list(VALUES)[i:]:
            for v, w in product(VALUES[a], VALUES[b]):
                rows.append(np.array([float(r[a] == v and r[b] == w) for r in EVERY]))
    return np.array(rows)


@pytest.mark.parametrize("privacy", BUDGETS)
def test_two_hundred_statements_are_answered_exactly_as_far_as_they_follow(privacy: Any, tmp_path: Path) -> None:
    made: Any = plan(domain=DOMAIN, marginals=2, privacy=privacy)
    M, asked = made.strategy.measure, two_way()
    rank, own = np.linalg.matrix_rank(M), np.linalg.matrix_rank(asked)
    assert np.linalg.matrix_rank(np.vstack([M, asked])) == rank  # over the same records, in the same order
    assert rank > own if privacy == "pure" else rank == own  # under Laplace noise larger tables are measured
    rng = np.random.default_rng(1)
    generated = [statement(rng) for _ in range(200)]
    follows = {
        f"q{q}": bool(np.linalg.matrix_rank(np.vstack([M, [holds(r) for r in EVERY]])) == rank)
        for q, (_, holds) in enumerate(generated)
    }
    assert 50 < sum(follows.values()) < 180  # that both happen
    release = released(made, tmp_path)
    found = release.ask(";\n".join(f"SELECT {text} AS q{q} FROM visits" for q, (text, _) in enumerate(generated)))
    assert set(found.names) == {name for name, ok in follows.items() if ok}
    assert {name for one in found.missing for name in one.names} == {name for name, ok in follows.items() if not ok}
    # As far from the truth as the noise says, and not one of them off by more than noise can be.
    rng = np.random.default_rng(0)
    data = pd.DataFrame({c: rng.choice(np.array(own, dtype=object), 500) for c, own in VALUES.items()}).to_dict(
        "records"
    )
    truth = {f"q{q}": sum(holds(r) for r in data) for q, (_, holds) in enumerate(generated)}
    away = [(one.value - truth[one.name]) / max(one.standard_error, 1e-9) for one in found.answers]
    assert max(map(abs, away)) < 12
    assert 0.2 < float(np.sqrt(np.mean(np.square(away)))) < 3


SQL = "SELECT state, ill, COUNT(*) AS n FROM visits GROUP BY state, ill; SELECT SUM(children) AS kids FROM visits;"


@pytest.mark.parametrize("most", [8192, 7])
@pytest.mark.parametrize("privacy", BUDGETS)
def test_over_cells_as_well_and_derived_answers_too(privacy: Any, most: int, tmp_path: Path) -> None:
    release = released(plan(SQL, DOMAIN, privacy=privacy, max_cells=most, seconds=1), tmp_path)
    found = release.ask(
        "SELECT COUNT(*) AS everybody FROM visits; SELECT AVG(children) AS mean FROM visits;"
        "SELECT COUNT(*) AS here FROM visits WHERE state = 'NY' OR ill = 'yes';"
        "SELECT COUNT(*) AS four FROM visits WHERE clinic = 'n'"
    )
    assert found.names == ("everybody", "mean", "here")
    assert [one.columns for one in found.missing] == [("clinic",)]
    assert found.answers[1].derived
    assert str(found.missing[0]) == "four: what was measured does not tell enough about clinic"
    known = dict(zip(release.names, release.values, strict=True))
    everybody = sum(value for name, value in known.items() if name != "kids")
    assert found.values[0] == pytest.approx(everybody, abs=6 * found.standard_errors[0])
    # Least squares are never worse than adding up the answers, but for what the lattice rounds.
    assert found.standard_errors[0] <= np.sqrt(release.covariance[:6, :6].sum()) * (1 + 1e-6)


def test_what_a_strategy_measures_beyond_its_queries_is_used(tmp_path: Path) -> None:
    """Noise on data measures every cell: whatever is a sum of cells follows, asked or not."""
    made = plan("SELECT COUNT(*) AS a FROM visits WHERE state = 'NY'; SELECT COUNT(*) AS b FROM visits", DOMAIN)
    release = released(made, tmp_path)
    assert release.ask("SELECT COUNT(*) AS rest FROM visits WHERE state <> 'NY'").names == ("rest",)
    with pytest.raises(
        QueryError, match=r"rest: what was measured does not tell enough about state; only a new release.*\n.*costs ε ="
    ):
        release.ask("SELECT COUNT(*) AS rest FROM visits WHERE state = 'CA'")


def test_amounts_follow_up_to_where_their_stretches_were_cut(tmp_path: Path) -> None:
    domain = {"table": "t", "columns": {"cost": {"range": [0, 100], "step": 1, "other": "drop"}}}
    sql = "SELECT SUM(cost) AS low FROM t WHERE cost < 40; SELECT SUM(cost) AS high FROM t WHERE cost >= 40"
    table = pd.DataFrame({"cost": np.arange(101.0)})
    release = released(plan(sql, domain, seconds=1), tmp_path, table)
    found = release.ask(
        "SELECT SUM(cost) AS all_of_it FROM t; SELECT SUM(cost) AS half FROM t WHERE cost < 20;"
        "SELECT SUM(CASE WHEN cost < 20 THEN cost ELSE cost END) AS same FROM t"
    )
    assert found.names == ("all_of_it", "same")
    assert found.values == pytest.approx([5050, 5050], abs=8 * found.standard_errors.max())


def test_nothing_is_charged_and_what_is_forged_or_foreign_is_refused(tmp_path: Path) -> None:
    release = released(plan(SQL, DOMAIN, seconds=1), tmp_path)
    books = Ledger.open(tmp_path / "budget.db")
    head = books.head
    release.ask("SELECT COUNT(*) AS n FROM visits")
    assert (books.head, books.remaining) == (head, 0.0)
    source = release.source
    assert source is not None
    renamed = replace(release, source=replace(source, sql=SQL.replace("SUM(children)", "COUNT(*)")))
    with pytest.raises(ReleaseError, match="are not those of its SQL"):
        renamed.ask("SELECT COUNT(*) AS n FROM visits")
    with pytest.raises(ReleaseError, match="no domain to ask SQL about"):
        replace(release, source=None).ask("SELECT COUNT(*) AS n FROM visits")
    with pytest.raises(ReleaseError, match="save the release, and ask it again"):
        release.ask("SELECT COUNT(*) AS n FROM visits").save(tmp_path / "free.release")


def test_what_is_missing_has_a_price(tmp_path: Path) -> None:
    release = released(plan(SQL, DOMAIN, seconds=1), tmp_path)
    found = release.ask(
        "SELECT COUNT(*) AS n FROM visits; SELECT clinic, COUNT(*) AS by_clinic FROM visits GROUP BY clinic"
    )
    # Four disjoint counts with Laplace noise: a standard error of √2 / ε.
    assert found.cost_missing(np.sqrt(2) * 10, seconds=1) == pytest.approx(0.1, rel=0.02)


def test_the_command_line_answers_writes_and_says_what_the_rest_costs(tmp_path: Path) -> None:
    make_study(tmp_path)
    given = ("-t", tmp_path / "visits.csv", "-e", 0.5, "-l", tmp_path / "budget.db", "-y", "-o", tmp_path / "out.csv")
    succeeds("answer", tmp_path / "pure.plan", *given)
    grown = "SELECT COUNT(*) AS grown FROM visits WHERE age BETWEEN 18 AND 120"
    (tmp_path / "more.sql").write_text(f"{grown};\nSELECT COUNT(*) AS old FROM visits WHERE age > 70")
    with unchanged(tmp_path):
        said = succeeds("ask", tmp_path / "out.csv", tmp_path / "more.sql", "--standard-error", 20)
    assert "nothing was read or charged" in said
    assert "Not answered: old: what was measured does not tell enough about age." in said
    assert "costs ε = 0.07" in said  # √2 / 20
    succeeds("ask", tmp_path / "out.release", tmp_path / "more.sql", "-o", tmp_path / "more.csv")
    assert (tmp_path / "more.csv").read_text().splitlines()[1].startswith("grown,")
    answers = json.loads(succeeds("ask", tmp_path / "out.release", tmp_path / "more.sql", "--json"))
    assert [one["name"] for one in answers["answers"]] == ["grown"]
    assert [one["names"] for one in answers["missing"]] == [["old"]]
    (tmp_path / "none.sql").write_text("SELECT COUNT(*) AS old FROM visits WHERE age > 70")
    failed = run("ask", tmp_path / "out.release", tmp_path / "none.sql")
    assert failed.code == 1
    assert "costs ε = " in failed.err


COVERED = (
    "SELECT COUNT(*) AS a FROM visits WHERE state = 'NY' OR clinic IN ('n', 's');"
    "SELECT SUM(children) AS b FROM visits;"
    "SELECT COUNT(*) AS c FROM visits WHERE ill = 'yes' AND state IN ('NY', 'CA'); SELECT COUNT(*) AS e FROM visits;"
    "SELECT COUNT(*) AS d FROM visits WHERE children > 1"
)
CELLS = (
    "SELECT state, clinic, COUNT(*) AS x FROM visits GROUP BY state, clinic; SELECT SUM(children) AS w FROM visits;"
    "SELECT ill, state, COUNT(*) AS y FROM visits GROUP BY ill, state;"
    "SELECT children, COUNT(*) AS z FROM visits GROUP BY children"
)


@pytest.mark.slow
@pytest.mark.parametrize("asked", [{"marginals": 2}, {"sql": CELLS}], ids=["tables", "cells"])
@pytest.mark.parametrize("privacy", BUDGETS)
def test_intervals_of_free_answers_cover(privacy: Any, asked: Any, tmp_path: Path) -> None:
    """Nobody is in the table, so what is read is the noise: of one release as it says, and drawn 2 000 times."""
    made = plan(domain=DOMAIN, privacy=privacy, **asked)
    release = released(made, tmp_path, pd.DataFrame({c: [] for c in VALUES}))
    assert release.source is not None
    queries = batch_of(read_selections(COVERED, made.domain)).queries
    read = follow(release.reader, release.noisy, release.source, queries)
    assert all(read.follows)
    budget = Budget.of(made.strategy.noise, **BUDGETS[privacy])
    own = prepare(made.strategy, declared_neighbours(made.domain), budget, None)
    steps, half = np.repeat(own.scales, own.measurement.sizes), read.law.half_widths(0.95)
    found = release.ask(COVERED).answers
    np.testing.assert_allclose([one.value for one in found], read.rows @ (release.noisy / steps))
    np.testing.assert_allclose([one.high - one.low for one in found], 2 * half)
    noise = np.stack([sample(own.measurement, own.noises) for _ in range(2000)]) / steps
    inside = (np.abs(noise @ read.rows.toarray().T) <= half).mean(axis=0)
    assert 0.935 <= inside.mean() <= 0.965
    assert np.all((inside > 0.925) & (inside < 0.975))  # 5 standard errors of a single one


def test_joins_and_persons_follow_from_the_same_ones_alone(tmp_path: Path) -> None:
    """A sum over a join that was counted follows; coarse counts of persons are not sums of fine ones."""
    plan = planned("pure", sql=f"{BY_SEX}; {PERSONS}; {OFTEN.format('a')}", domain=SEVERAL)
    release = of_several(plan, books(tmp_path, "pure"), noise=True)
    asked = {
        "women": f"SELECT COUNT(*) AS women {JOINED} WHERE sex = 'f' AND kind IN ('a', 'b', 'c')",
        "again": OFTEN.format("a").replace("AS q", "AS again"),
        "kind_b": "SELECT COUNT(DISTINCT person) AS kind_b FROM visits WHERE kind = 'b'",
        "other": OFTEN.format("b").replace("AS q", "AS other"),
        "anyone": "SELECT COUNT(DISTINCT person) AS anyone FROM visits",
        "rows": "SELECT COUNT(*) AS rows FROM visits",
        "left": f"SELECT COUNT(*) AS left {JOINED.replace('JOIN', 'LEFT JOIN')}",
    }
    found = release.ask("; ".join(asked.values()))
    assert set(found.names) == {"women", "again"}
    assert {name for one in found.missing for name in one.names} == set(asked) - {"women", "again"}
    own = release.to_frame().set_index("name")["value"]
    women, again = found.values
    assert women == pytest.approx(own[[name for name in own.index if name.startswith("n[sex=f")]].sum(), rel=1e-6)
    assert again == pytest.approx(own["q"], rel=1e-6)
    assert found.cost_missing() > 0
