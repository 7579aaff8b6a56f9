"""Errors that the README and the comparison quote are those of the committed CSVs."""

from __future__ import annotations

import re
from pathlib import Path
from statistics import fmean, stdev

import pytest

from contract import peer_figures
from seeds import CASES, SEEDS, Line, read

ROOT = Path(__file__).parent.parent
LINES = read()


def rows(page: str, heading: str) -> dict[tuple[str, int, int, int], list[str]]:
    """The cells of the table under a heading row, by workload."""
    lines = (ROOT / page).read_text().splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(heading))
    found = {}
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        name, *cells = (re.sub(r"[*\s]", "", cell) for cell in line.strip("|").split("|"))
        known = re.match(r"(W[A-Za-z]+|runningtotals),?(\d+)(?:×(\d+))?(?:,s=(\d+))?", name)
        assert known, name
        kind, m, n, s = known.groups()
        found["Prefix" if kind == "runningtotals" else kind, int(m), int(n or m), int(s or 0)] = cells
    return found


def assert_quoted(quoted: str, value: float) -> None:
    """The same to the digits that are quoted."""
    digits = len(quoted.partition(".")[2])
    assert abs(float(quoted) - value) <= 0.5000001 * 10.0**-digits, (quoted, value)


def at(case: tuple[str, int, int, int], seed: int = 0) -> Line:
    return next(line for line in LINES if line.case == case and line.seed == seed)


def test_every_workload_has_every_seed() -> None:
    assert {(line.case, line.seed) for line in LINES} == {(case, seed) for case in CASES for seed in SEEDS}
    assert max(line.residual for line in LINES) <= 1e-14
    assert all(line.limit <= line.batchdp <= line.noise_on_data * (1 + 1e-12) for line in LINES)
    assert all(line.batchdp <= line.p_identity * (1 + 1e-12) for line in LINES)


@pytest.mark.parametrize("page", ["README.md", "docs/comparison.md"])
def test_errors_are_those_of_the_csvs(page: str) -> None:
    others = {(*case, peer): error for *case, peer, error in peer_figures(10_000)}
    found = rows(page, "| workload | noise on data | the authors' program |")
    assert len(found) >= 5
    for case, (data, authors, hdmm, ours, *limit) in found.items():
        assert_quoted(data, at(case).noise_on_data)
        assert_quoted(ours, at(case).batchdp)
        assert_quoted(hdmm, others[*case, "hdmm-p-identity-best-of-3"])
        theirs = [others.get((*case, peer)) for peer in ("authors-lrm", "authors-lrm-with-printed-schedule")]
        assert_quoted(authors, next(error for error in theirs if error is not None))
        for cell in limit:
            assert_quoted(cell, at(case).limit)


def test_the_spread_over_seeds_is_that_of_the_csv() -> None:
    found = rows("docs/comparison.md", "| workload | seed 0 | seeds 1 to 4 |")
    assert set(found) == set(CASES)
    for case, (first, mean, spread, *_) in found.items():
        values = [at(case, seed).batchdp for seed in SEEDS[1:]]
        assert_quoted(first, at(case).batchdp)
        assert_quoted(mean, fmean(values))
        assert_quoted(spread, stdev(values))
