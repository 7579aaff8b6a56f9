"""Plans on top of what is known: a second batch that overlaps the first by half, and a batch in three parts.

    PYTHONPATH=. .venv/bin/python benchmarks/given.py [WORKLOAD…]

Nothing is released: errors are exact, by the least squares over all measurements on their lattices. Printed are what
the plan minimises (every statement's mean squared error alike) and, in brackets, its root, relative to the batch that
is planned and released alone; and the bound that no plan for the second batch is below when both are combined.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

import batchdp
from batchdp.mechanism.functions import inverse, stacked, tied, within
from batchdp.mechanism.prepare import prepare
from batchdp.plans.designs import Columns, Design
from batchdp.plans.given import Earlier
from batchdp.plans.planned import declared_neighbours

HERE = Path(__file__).parent
EPSILON = 1.0


def ranges() -> tuple[Any, list[str]]:
    """48 random ranges of 64 values."""
    ends = np.sort(np.random.default_rng(0).integers(0, 64, (48, 2)), axis=1)
    asked = [f"SELECT COUNT(*) AS r{i} FROM t WHERE v BETWEEN {a} AND {b}" for i, (a, b) in enumerate(ends.tolist())]
    return {"table": "t", "columns": {"v": {"integers": [0, 63], "other": "drop"}}}, asked


def tables() -> tuple[Any, list[str]]:
    """All 15 tables of two of six columns, in a random order."""
    sizes = {"a": 5, "b": 4, "c": 6, "d": 3, "e": 8, "f": 5}
    columns = {one: {"values": list(range(n)), "other": "drop"} for one, n in sizes.items()}
    pairs = list(combinations(sizes, 2))
    order = np.random.default_rng(0).permutation(len(pairs))
    asked = [f"SELECT {x}, {y}, COUNT(*) AS {x}{y} FROM t GROUP BY {x}, {y}" for x, y in (pairs[k] for k in order)]
    return {"table": "t", "columns": columns}, asked


def dashboard() -> tuple[Any, list[str]]:
    """The eleven statements of the everyday batch, and a twelfth."""
    text = re.sub("--.*", "", (HERE / "dashboard.sql").read_text(encoding="utf-8"))
    asked = [one.strip() for one in text.split(";") if one.strip()]
    return HERE / "dashboard.toml", [*asked, "SELECT COUNT(*) AS far FROM flights WHERE distance >= 1000"]


WORKLOADS = {"ranges": ranges, "tables": tables, "dashboard": dashboard}


def thirds(asked: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """The first two thirds, and the last two: they have half of each in common."""
    part = len(asked) // 3
    return list(asked[: 2 * part]), list(asked[part : 3 * part])


def released(plan: batchdp.Plan, epsilon: float, name: str) -> Earlier:
    """What a release of a plan will have measured."""
    budget = plan.strategy.noise.implied_by(epsilon)
    made = prepare(plan.strategy, declared_neighbours(plan.domain), budget, plan.domain.privacy.max_rows)
    return Earlier(name, "", plan.domain, Design(plan.batch, made.reader), name)


def errors(plan: batchdp.Plan, asked: Earlier, known: Sequence[Earlier]) -> float:
    """What a plan minimises, of the answers that some releases give together."""
    among = Columns([asked.design.batch, *(one.design.batch for one in known)])
    measured = stacked([one.design.measured(among) for one in known])
    wanted = asked.design.asked(among)
    found = np.zeros(wanted.count)
    for part in tied(measured):
        (_, L), (rows, W) = measured.on(part), wanted.on(part)
        near, own = within(L, W)
        np.add.at(found, rows, ((own @ inverse(near.T @ near)) * own).sum(axis=1))
    sizes = plan.workload.table_sizes().astype(int)
    weights = np.ones(len(sizes)) if plan.workload.weights is None else plan.workload.weights
    return float(np.repeat(weights, sizes) @ found) * plan.strategy.noise.variance_at_one


def planned(domain: Any, asked: Sequence[str], privacy: Any, **more: Any) -> batchdp.Plan:
    return batchdp.plan(";".join(asked), domain, privacy=privacy, cache=False, **more)


def overlapping(domain: Any, asked: Sequence[str], privacy: str) -> dict[str, float]:
    """The second of two batches that overlap by half, each with the same budget, relative to it alone."""
    first, second = thirds(asked)
    given = planned(domain, second, privacy, given=[released(planned(domain, first, privacy), EPSILON, "first")])
    found = given.options.given
    assert found is not None
    return {name: getattr(found, name) / found.alone for name in ("without", "together", "bound")}


def in_parts(domain: Any, asked: Sequence[str], privacy: str) -> float:
    """All of a batch, in three parts of a third of the budget each, relative to the batch at once."""
    whole = planned(domain, asked, privacy)
    budget = EPSILON / 3 if privacy == "pure" else EPSILON / 3**0.5
    known: list[Earlier] = []
    for k in range(3):
        plan = planned(
            domain, asked[k * len(asked) // 3 : (k + 1) * len(asked) // 3], privacy, epsilon=budget, given=known
        )
        known.append(released(plan, budget, f"part {k + 1}"))
    at_once = released(whole, EPSILON, "whole")
    return errors(whole, at_once, known) / errors(whole, at_once, [at_once])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workload", nargs="*", help=", ".join(WORKLOADS))
    print("workload | noise | without, combined | given, combined | bound | in three parts | CPU seconds")
    for name in parser.parse_args().workload or WORKLOADS:
        domain, asked = WORKLOADS[name]()
        for privacy in ("pure", "zcdp"):
            start = time.process_time()
            found = overlapping(domain, asked, privacy)
            found["parts"] = in_parts(domain, asked, privacy)
            shown = (f"{one:.3f} ({one**0.5:.3f})" for one in found.values())
            print(name, privacy, *shown, f"{time.process_time() - start:.0f}", sep=" | ", flush=True)


if __name__ == "__main__":
    main()
