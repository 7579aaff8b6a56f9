"""`python -m reproduction peers`: what others publish over many columns, beside what is found."""

from __future__ import annotations

from math import isnan, nan
from pathlib import Path
from typing import Any

import pytest

from reproduction.errors import ReproductionError
from reproduction.evaluation import publish, reproduce
from reproduction.peers import running, section
from reproduction.peers.batches import BATCHES
from reproduction.peers.figures import Figure, Task, published
from reproduction.peers.journal import COLUMNS, Line, load, save
from reproduction.peers.measuring import Found, measure
from reproduction.peers.verdicts import AHEAD, BEHIND, EQUAL, MISSING, Verdict, verdicts

TASK = Task("CPS 1-way", "gaussian", "rmse")
COMMITTED = Path(__file__).parent.parent / "docs" / "reproduction"


def found(error: float) -> Found:
    return Found(10, error, error / 2, 0.5, 60.0)


@pytest.fixture
def some(monkeypatch: pytest.MonkeyPatch) -> list[Task]:
    """Only two batches are asked for."""
    monkeypatch.setattr(running, "QUICK", frozenset({"CPS 1-way", "CPS all"}))
    return [TASK, Task("CPS all", "laplace", "rmse")]


def test_every_figure_has_a_batch_a_source_and_a_year() -> None:
    figures = published()
    assert len(figures) >= 50
    assert len({(one.task, one.program) for one in figures}) == len(figures)
    for one in figures:
        assert one.task.batch in BATCHES
        assert one.task.noise in ("gaussian", "laplace")
        assert one.task.measure in ("rmse", "largest variance")
        assert one.value > 0
        assert one.source
        assert 2018 <= one.year <= 2026
    assert {one.task.batch for one in figures} >= running.QUICK


@pytest.mark.parametrize(
    ("printed", "error", "word"),
    [
        ("10.000", 9.98, AHEAD),
        ("10.000", 9.9901, EQUAL),
        ("10.000", 10.0099, EQUAL),
        ("10.000", 10.02, BEHIND),
        ("13.2", 13.16, EQUAL),  # which is printed as 13.2
        ("13.2", 13.14, AHEAD),
        ("6677", 6677.4, EQUAL),
    ],
)
def test_equal_is_within_a_thousandth_or_what_was_printed(printed: str, error: float, word: str) -> None:
    figure = Figure(TASK, printed, nan, "A program", 2020, "somewhere")
    assert Verdict(figure, found(error)).word == word
    assert Verdict(figure, None).word == MISSING


def test_what_is_kept_is_read_again(tmp_path: Path) -> None:
    slow = Line(Task("SF1", "laplace", "rmse"), None, "skipped: took more than 3 s", 3.0)
    save(tmp_path, [slow, Line(TASK, found(1.25))])
    lines = load(tmp_path)
    assert lines[TASK].found == found(1.25)
    assert isnan(lines[TASK].limit)
    assert lines[slow.task] == slow
    assert [one.word for one in verdicts(lines)] == [AHEAD, MISSING]
    assert load(tmp_path / "nowhere") == {}


@pytest.mark.parametrize(
    ("spoilt", "message"),
    [
        ("a,b\n1,2\n", "other columns"),
        (",".join(COLUMNS) + "\nCPS all,laplace,rmse,HDMM,2023,1,,many,,,,,,\n", "is damaged; delete it"),
        (",".join(COLUMNS) + "\nCPS all,laplace\n", "is damaged; delete it"),
    ],
)
def test_damaged_lines_are_refused(tmp_path: Path, spoilt: str, message: str) -> None:
    (tmp_path / "peers.csv").write_text(spoilt)
    with pytest.raises(ReproductionError, match=message):
        load(tmp_path)


def test_a_run_goes_on_where_it_was(tmp_path: Path, some: list[Task], monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path, [Line(TASK, None, "skipped: took more than 5 s", 5.0)])
    asked: list[list[Task]] = []

    def note(jobs: Any, _work: object, **_: object) -> list[object]:
        asked.append(list(jobs))
        return []

    monkeypatch.setattr(running, "run_jobs", note)
    running.run(tmp_path, quick=True, seconds=5.0)
    running.run(tmp_path, quick=True, seconds=6.0)
    save(tmp_path, [Line(TASK, found(1.0)), Line(some[1], None, "failed: no memory")])
    running.run(tmp_path, quick=True, seconds=9.0)
    assert asked == [some[1:], some, some[1:]]


def test_the_page_has_a_section_with_a_verdict_a_line(tmp_path: Path, some: list[Task]) -> None:
    reproduce(["peers"], tmp_path, quick=True, workers=1)
    text = (tmp_path / "README.md").read_text()
    assert "Of 2 figures: 1 ahead, 1 equal. Sources: ResidualPlanner: " in text
    assert "| CPS all, laplace | 618,120 | 3.4214 | HDMM, 2023 | 3.3686 |" in text
    assert "](./peers.png)" in text
    assert "</svg>" in (tmp_path / "peers.svg").read_text()
    kept = (tmp_path / "peers.csv").read_bytes()
    reproduce(["peers"], tmp_path, quick=True, workers=1)
    assert (tmp_path / "peers.csv").read_bytes() == kept
    (tmp_path / "peers.csv").unlink()
    publish(tmp_path)
    assert "many columns" not in (tmp_path / "README.md").read_text()


def test_what_was_too_slow_is_said(tmp_path: Path, some: list[Task]) -> None:
    lines = section.lines(verdicts({TASK: Line(TASK, None, "skipped: took more than 3 s", 3.0)}))
    assert lines[0][-1] == "**not measured**: skipped: took more than 3 s"
    assert len(lines[0]) == len(section.HEADINGS)


SAMPLE = ["CPS 3-way", "CPS ≤ 3-way", "Adult 3-way", "10^50 ≤ 3-way", "CPS all", "Loans"]


@pytest.mark.skipif(not (COMMITTED / "peers.csv").exists(), reason="docs/reproduction is not there")
class TestCommitted:
    """What docs/reproduction holds."""

    def test_every_published_figure_has_its_verdict(self) -> None:
        judged = verdicts(load(COMMITTED))
        assert [one.figure for one in judged] == list(published())
        assert [one.figure.task for one in judged if one.found is None] == []
        for one in judged:
            assert one.found is not None
            assert one.found.limit <= one.found.error * (1 + 1e-6)
            assert one.found.seconds > 0
            assert one.found.megabytes > 10

    @pytest.mark.parametrize("batch", SAMPLE)
    def test_a_sample_comes_out_the_same(self, batch: str) -> None:
        for task, line in load(COMMITTED).items():
            if task.batch == batch and line.found is not None:
                now = measure(task)
                assert now.error == pytest.approx(line.found.error, rel=1e-4)
                assert now.limit == pytest.approx(line.found.limit, rel=1e-3)
