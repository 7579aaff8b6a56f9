"""The results as one page: claims with verdicts, every figure, what is missing, and the formulas to correct."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from reproduction.claims import CLAIMS
from reproduction.datasets import DATASETS, SEARCH_LOGS
from reproduction.drawing import STYLES, TITLES, has_curves
from reproduction.examples import Example
from reproduction.findings import Findings, short, varied
from reproduction.formulas import corrections
from reproduction.journal import Row, Settings
from reproduction.parameters import FIGURES, Table
from reproduction.peers import section
from reproduction.peers.verdicts import Verdict
from reproduction.points import points_of
from reproduction.verdicts.judging import FAILS, HOLDS, IN_PART, UNKNOWN

MADE = "<!-- Made by `python -m reproduction` from its CSVs; change reproduction/ and run it again. -->"


def page(
    rows: Sequence[Row],
    examples: Sequence[Example],
    others: Sequence[Verdict],
    settings: Settings,
    table: Table,
    pictures: str,
) -> str:
    """The page in Markdown; `pictures` is the way from it to the folder of the results."""
    findings = Findings(rows, examples)
    parts = [
        MADE,
        "# The paper's evaluation, again",
        _introduction(settings),
        "## What holds",
        _verdicts(findings),
        *_figures(rows, pictures),
        "## What came later",
        _later(findings),
        *_peers(others, pictures),
        "## How it was measured",
        _method(settings, table),
        _parameters(table),
        _data(settings),
        "## What is missing",
        _missing(rows, table),
        "## Formulas that need a correction",
        _table(
            ("in the paper", "printed", "what holds", "a case"),
            ((one.where, one.printed, one.holds, one.case) for one in corrections()),
        ),
        "`batchdp.bounds` has the corrected ones as functions.",
    ]
    return "\n\n".join(parts) + "\n"


def _introduction(settings: Settings) -> str:
    command = "python -m reproduction all --quick" if settings.quick else "python -m reproduction all"
    sizes = (
        " The sizes are an eighth of the paper's (`--quick`), too small for some claims, which are then not judged."
        * settings.quick
    )
    return (
        "Section 6 of *Low-Rank Mechanism: Optimizing Batch Queries under Differential Privacy* (Yuan, Zhang, "
        "Winslett, Xiao, Yang, Hao; PVLDB 2012), measured again with this library, and every claim of it judged by a "
        f"program from the results.{sizes} One command makes this page, the figures and the CSVs. After an "
        f"interruption it continues where it left off:\n\n```console\n$ {command}\n```"
    )


def _verdicts(findings: Findings) -> str:
    rows, counts = [], dict.fromkeys((HOLDS, IN_PART, FAILS, UNKNOWN), 0)
    for claim in CLAIMS:
        found = claim.judge(findings)
        counts[found.verdict] += 1
        measured = found.measured or "see what is missing below"
        rows.append((claim.section, claim.words, f"**{found.verdict}**", measured, claim.reason(found.verdict)))
    plural = {HOLDS: "hold", IN_PART: "hold in part", FAILS: "do not hold", UNKNOWN: "were not measured"}
    summary = ", ".join(f"{count} {plural[verdict]}" for verdict, count in counts.items() if count)
    return f"Of {len(rows)} claims: {summary}.\n\n" + _table(("section", "claim", "verdict", "measured", "why"), rows)


def _figures(rows: Sequence[Row], pictures: str) -> list[str]:
    parts = []
    for figure in FIGURES:
        if not has_curves(figure, rows):
            continue
        of_figure = [row for row in rows if row.figure == figure]
        words = TITLES[figure]
        parts += [
            f"## {words}",
            f"![{words}]({pictures}/{figure}.png)",
            f"All points: [{figure}.csv]({pictures}/{figure}.csv); "
            f"as vectors: [{figure}.svg]({pictures}/{figure}.svg).",
        ]
        if figure not in ("figure-2", "figure-3"):
            parts.append(_errors(of_figure, figure))
    return parts


def _errors(rows: Sequence[Row], figure: str) -> str:
    """Errors by mechanism and the value along the axis."""
    name = varied(figure)
    values = sorted({getattr(row, name) for row in rows})
    shown = {
        (row.mechanism, getattr(row, name)): short(row.error) + " †" * row.fell_back + " ‡" * row.gave_up
        for row in rows
        if row.ok and row.dataset == SEARCH_LOGS.name
    }
    lines = [
        (style.label, *(shown.get((mechanism, value), "–") for value in values))
        for mechanism, style in STYLES.items()
        if any(known == mechanism for known, _ in shown)
    ]
    return _table((f"error per query, {name} =", *map(str, values)), lines)


def _later(findings: Findings) -> str:
    """What the methods of today reach beside LRM."""
    lines = []
    for number in range(4, 10):
        figure = f"figure-{number}"
        low_rank, rivals, bound = findings.low_rank(figure), findings.rivals(figure), findings.curve(figure, "bound")
        today = findings.curve(figure, "optimize")
        known = sorted(set(low_rank) & set(rivals) & set(today) & set(bound))
        if known:
            gain = [min(low_rank[value], rivals[value]) / today[value] for value in known]
            room = [today[value] / bound[value] for value in known]
            lines.append((TITLES[figure], f"{min(gain):.2f} to {max(gain):.2f}", f"{min(room):.1f} to {max(room):.1f}"))
    if not lines:
        return "Not measured."
    return (
        "`batchdp.optimize` runs several families, p-Identity (McKenna and others, 2018) and LRM among them. The "
        "bound holds for every pair B, L, and is not tight for Laplace noise.\n\n"
        + _table(("", "best of the paper's mechanisms ÷ optimize", "optimize ÷ bound"), lines)
    )


def _peers(others: Sequence[Verdict], pictures: str) -> list[str]:
    """What is published about batches over many columns, if that was asked for."""
    if not any(one.found for one in others):
        return []
    words, at = "Published figures over many columns", f"{pictures}/{section.NAME}"
    return [
        f"## {words}",
        section.WORDS,
        f"Of {len(others)} figures: {section.summary(others)}. {section.sources(others)}",
        f"![{words}]({at}.png)",
        f"All lines: [{section.NAME}.csv]({at}.csv); as vectors: [{section.NAME}.svg]({at}.svg).",
        _table(section.HEADINGS, section.lines(others)),
    ]


def _method(settings: Settings, table: Table) -> str:
    facts = (
        "*Average squared error* is per query: ‖noisy − true answers‖² / m.",
        f"Lines are its closed form; markers are averages over {table.repetitions} repetitions of the noise, with "
        "their standard errors. The two agree at every point, and tests see to it.",
        "Where B L = W the closed form does not depend on the data, so a strategy is computed once for all datasets "
        "and ε. Where B L is only near W, ‖(W − B L) x‖² / m is added, exactly.",
        "LRM is the paper's program solved by this library's solver; *as printed* is Algorithm 1 with Algorithm 2, "
        "with one safeguard that it needs. Claims about LRM are judged by the better of the two. The program is not "
        "convex, and both end in local optima: where p-Identity or optimize is below LRM, its pair is a better "
        "solution of the same program.",
        "Figures 4 to 9 take γ = 0 instead of the paper's 0.01, so that no error depends on the data; Figure 2 shows "
        "what γ does. In Figure 3, r < rank(W) decomposes the nearest matrix of rank r.",
        "The bound and the line of LM in Figures 2 and 3 speak of B L = W; a pair that only comes near W may be below.",
        "Gaussian noise at ρ = ε²/2 is the zCDP that ε-differential privacy implies: a weaker promise, for comparison.",
        f"Seconds are computing time on one core. A strategy may take {settings.seconds:g} s at most, and less where a "
        "part of the run was given less; what took longer is listed as missing, with its limit, and was not tried on "
        "larger workloads.",
        "Workloads have seed 0, and the noise has seeds of its own: the same command gives the same figures, up to "
        "the last digits of linear algebra.",
    )
    return "\n".join(f"- {fact}" for fact in facts)


def _parameters(table: Table) -> str:
    return "Table 1, the parameters:\n\n" + _table(("parameter", "values", "where it is not varied"), table.rows())


def _data(settings: Settings) -> str:
    if settings.originals:
        return "The data are the originals, read with `--data`."
    return (
        "The data are stand-ins: the originals may not be passed on. With them in a folder, `--data FOLDER` reads "
        "them, one whole number per line. The paper gives Search Logs 2^16 entries and Net Trace 2^15; the files that "
        "their owners published have it the other way round.\n\n"
        + _table(
            ("dataset", "file", "what the stand-in keeps"), ((one.name, f"`{one.file}`", one.known) for one in DATASETS)
        )
    )


def _missing(rows: Sequence[Row], table: Table) -> str:
    """Points without figures, by why."""
    known = {row.point: row for row in rows}
    marks = _marks(rows)
    reasons: dict[tuple[str, str], list[tuple[int, int]]] = {}
    total = 0
    for figure in FIGURES:
        for point in points_of(figure, table):
            total += 1
            row = known.get(point)
            if row is None or not row.ok:
                key = (point.task.mechanism, f"{point.task.batch.workload}: {_reason(row)}")
                reasons.setdefault(key, []).append((point.task.batch.cells, point.task.batch.queries))
    if not reasons:
        return f"Nothing: all {total:,} points were measured.{marks}"
    lost = sum(map(len, reasons.values()))
    lines = (
        (STYLES[mechanism].label, reason, ", ".join(f"{m} × {n}" for n, m in sorted(set(sizes))), str(len(sizes)))
        for (mechanism, reason), sizes in sorted(reasons.items())
    )
    return f"{lost:,} of {total:,} points.\n\n" + _table(("mechanism", "why", "m × n", "points"), lines) + marks


def _marks(rows: Sequence[Row]) -> str:
    """What † and ‡ stand for, if there are any."""
    text = ""
    if poor := [row for row in rows if row.fell_back]:
        text += (
            f"\n\n† At {len(poor)} points the search for LRM failed, and the figures are those of its start; no claim "
            f"is judged by them: {_places(poor)}."
        )
    if stuck := [row for row in rows if row.gave_up]:
        by_label = {STYLES[name].label: [row for row in stuck if row.mechanism == name] for name in STYLES}
        text += (
            f"\n\n‡ At {len(stuck)} points, over all datasets and ε, the penalty was at its limit before B L was near "
            "enough to W. The pair was then made exact, and can be far from the best; claims are judged by it where "
            "the other LRM is no better. "
            + "; ".join(f"{label}: {_places(found)}" for label, found in by_label.items() if found)
            + "."
        )
    return text


def _reason(row: Row | None) -> str:
    """Why a point has no figures; the same words for whatever was too slow, so that they can be counted."""
    if row is None:
        return "not run yet"
    return row.status if math.isnan(row.limit) else f"skipped: took more than {row.limit:g} s"


def _places(rows: Iterable[Row]) -> str:
    return ", ".join(sorted({f"{row.workload} {row.m} × {row.n} with r = {row.r}" for row in rows}))


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in (headings, ["---"] * len(headings), *rows)]
    return "\n".join(lines)
