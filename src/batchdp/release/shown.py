"""A release as its SQL shows it: in the order of ORDER BY, the rows of LIMIT, OFFSET and HAVING.

Rows are chosen by noisy answers, so they are a selection: the first five of noisy answers need not be those of the
exact ones. Beside every row stand the ranks that it can have, by the intervals.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from functools import cmp_to_key
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from batchdp.queries.views import View
from batchdp.release.beside import unused
from batchdp.release.tables import Table

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]

    from batchdp.release.answers import Answer
    from batchdp.release.release import Release

_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?(e[+-]?[0-9]+)?")
RANKS = "ranks"
"""The column with the ranks that a row can have."""


class Rows:
    """The rows of one statement, in the order in which they are shown."""

    def __init__(self, release: Release, view: View) -> None:
        self.view, self._release = view, release
        keys = sorted(view.keys)
        named = (one for one in release.tables if one.name in view.items and not one.single)
        self.tables = [one for one in named if sorted(one.columns) == keys]  # other statements may use a name again
        self._places = [_rows(one) for one in self.tables]
        every = list(self._places[0]) if self._places else []
        values = {one.name: release.figures(one).values for one in self.tables}
        answers = [
            {one.name: float(values[one.name][at[row]]) for one, at in zip(self.tables, self._places, strict=True)}
            for row in every
        ]
        kept = [k for k, own in enumerate(answers) if view.holds(own)]
        orders = {name: self._declared(name) for name, _ in view.order if name not in view.items and every}

        def order(a: int, b: int) -> int:
            return self._compare(every, answers, orders, a, b)

        kept.sort(key=cmp_to_key(order))
        end = None if view.limit is None else view.offset + view.limit
        self.all, self.shown = [every[k] for k in kept], [every[k] for k in kept[view.offset : end]]
        self.count = len(every)

    def _compare(
        self, rows: list[Any], answers: list[dict[str, float]], orders: dict[str, dict[str, int]], a: int, b: int
    ) -> int:
        for name, down in self.view.order:
            if name in self.view.items:
                one, other = answers[a][name], answers[b][name]
                if math.isnan(one) or math.isnan(other):  # what is not determined comes last
                    found = math.isnan(one) - math.isnan(other)
                    if found:
                        return found
                    continue
                found = (one > other) - (one < other)
            else:
                order = orders[name]
                first, second = (order[dict(rows[k])[name]] for k in (a, b))
                found = (first > second) - (first < second)
            if found:
                return -found if down else found
        return 0

    def _declared(self, key: str) -> dict[str, int]:
        """The groups of a key, numbered in their order: that of texts, of numbers, or as they are declared."""
        found = list(dict.fromkeys(dict(row)[key] for row in self._places[0]))
        if key in self.view.texts:
            found.sort()
        elif all(_NUMBER.fullmatch(title) for title in found):
            found.sort(key=float)
        return {title: k for k, title in enumerate(found)}

    def places(self, table: Table) -> NDArray[np.int64]:
        """Of the rows that are shown, in a table of the statement."""
        at = self._places[self.tables.index(table)]
        return np.array([at[row] for row in self.shown], dtype=np.int64)

    def ranks(self) -> list[str] | None:
        """For every row the ranks that it can have, by the intervals; None where no answer orders them."""
        by = next((one for one in self.tables if one.name == self.view.by), None)
        if by is None:
            return None
        found, at = self._release.figures(by), self._places[self.tables.index(by)]
        places = [at[row] for row in self.all]
        low, high = found.low[places], found.high[places]
        if self.view.order[0][1]:
            low, high = -high, -low
        ranks = []
        for row in self.shown:
            k = self.all.index(row)
            if math.isnan(low[k]):
                ranks.append("")
                continue
            first = 1 + int(np.sum(high < low[k]))
            last = len(places) - int(np.sum(low > high[k]))
            ranks.append(str(first) if first == last else f"{first}–{last}")
        return ranks

    @property
    def note(self) -> str:
        """What must be said beside the rows."""
        named = ", ".join(self.view.items)
        parts = []
        if self.view.selects:
            parts.append(
                f"{named}: {len(self.shown):,} of {self.count:,} rows are shown, chosen by their noisy answers; with "
                "exact ones they might be others. All are in the release."
            )
        ranks = self.ranks()
        if ranks is not None and any("–" in one for one in ranks):
            unsure = sum("–" in one for one in ranks)
            parts.append(
                f"{named}: the order of {unsure:,} of the {len(ranks):,} rows is within the noise; the ranks that each "
                "can have follow from the intervals, of each answer by itself."
            )
        return " ".join(parts)


def _rows(table: Table) -> dict[tuple[tuple[str, str], ...], int]:
    """The place of every row, by its groups."""
    if not table.columns:
        return {(): 0}
    rows = zip(*table.groups.texts(), strict=True)
    return {tuple(sorted(zip(table.columns, row, strict=True))): k for k, row in enumerate(rows)}


def seen(release: Release) -> list[tuple[str, tuple[str, ...], list[tuple[tuple[str, ...], Answer, str]], str]]:
    """For pages and terminals: the title, group columns, rows and note of every table that is not shown as it comes."""
    found = []
    for rows in release.shown_rows:
        ranks = rows.ranks() or [""] * len(rows.shown)
        for table in rows.tables:
            texts = table.groups.texts()
            places = rows.places(table).tolist()
            own = [
                (tuple(axis[k] for axis in texts), release.answers[table.answers[k]], rank)
                for k, rank in zip(places, ranks, strict=True)
            ]
            found.append((table.title, table.columns, own, rows.note))
    return found


def frames(release: Release) -> dict[str, pd.DataFrame]:
    """A frame for every table, as the SQL shows it, under its name, or its title where others have the name too."""
    import pandas as pd

    named = Counter(one.name for one in release.tables)
    statements = {one.title: rows for rows in release.shown_rows for one in rows.tables}
    found = {}
    for number, table in enumerate(release.tables):
        frame = pd.DataFrame(release.columns(number), copy=False)
        rows = statements.get(table.title)
        if rows is not None:
            frame = frame.iloc[rows.places(table)].reset_index(drop=True)
            ranks = rows.ranks()
            if ranks is not None:
                frame[unused(RANKS, frame.columns)] = ranks
        found[table.name if named[table.name] == 1 else table.title] = frame
    return found


def places(release: Release) -> list[int]:
    """The numbers of the answers in the order in which they are shown, without those that are not."""
    if not release.views:
        return list(range(len(release.answers)))
    statements = {one.title: rows for rows in release.shown_rows for one in rows.tables}
    found: list[int] = []
    for table in release.tables:
        rows, own = statements.get(table.title), np.asarray(table.answers)
        chosen = own if rows is None else own[rows.places(table)]
        found += chosen.tolist()
    return found
