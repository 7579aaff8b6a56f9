"""Records from a junction tree of the strongest tables, fitted exactly by mbi (private-pgm, of the extra `records`)."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from math import prod
from typing import Any

import numpy as np

from batchdp.linalg.matrix import Dense
from batchdp.release.consistency.rounding import round_margin
from batchdp.release.records.fitting import Codes, Fitting
from batchdp.release.records.tree import give_margin, mutual_information, strongest_tree

MOST_MEGABYTES = 1.0
"""Of all cliques of the junction tree; a step of the fit needs some ten times as much."""
MOST_COLUMNS = 10
"""Beyond which compiling takes minutes: four take 16 s, and fourteen did not end in eight minutes on a busy machine."""
MOST_BESIDE = 1.0
"""Tables beside the tree, for every column: each is compiled, which takes a second."""
MOST_STEPS = 300
ENOUGH = 1e-5
"""Of the loss, relative, in fifty steps."""


def is_there() -> bool:
    """Whether mbi is installed."""
    return find_spec("mbi") is not None


@contextmanager
def _exactly() -> Iterator[None]:
    """JAX with 64 bits, as it was afterwards; without advice on how to compile faster."""
    import jax

    config: Any = jax.config
    before, logged = config.jax_enable_x64, logging.root.manager.disable
    config.update("jax_enable_x64", True)
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logged)
        config.update("jax_enable_x64", before)


def draw_from_graph(
    fitting: Fitting, margins: Sequence[Dense], pairs: dict[tuple[int, int], Dense], n: int, rng: np.random.Generator
) -> Codes:
    """Records × columns, from the model of the greatest entropy with the strongest pairs and larger tables.

    Args:
        fitting: what is known.
        margins: shares of every column's values.
        pairs: shares of pairs of values, by the columns in ascending order.
        n: how many records.
        rng: what is random comes from it.
    """
    with _exactly():
        import mbi
        from mbi.extensions import synthetic_data

        domain = mbi.Domain([f"c{i}" for i in range(len(margins))], list(fitting.sizes))
        tables = {(i,): margin for i, margin in enumerate(margins)} | pairs | _larger(fitting)
        chosen = _choose(domain, tables, strongest_tree(len(margins), pairs))
        measured = [
            mbi.LinearMeasurement((tables[C] * n).reshape(-1), tuple(f"c{i}" for i in C), stddev=1.0) for C in chosen
        ]
        model: Any = mbi.estimation.MirrorDescent().estimate(domain, measured, float(n), iters=MOST_STEPS, tol=ENOUGH)
        drawn = synthetic_data(model, n, seed=int(rng.integers(2**31))).to_dict()
    records = np.column_stack([np.asarray(drawn[f"c{i}"]) for i in range(len(margins))]).astype(np.int32)
    for i, margin in enumerate(margins):
        give_margin(records[:, i], round_margin(margin * n, n), rng)
    return records


def _larger(fitting: Fitting) -> dict[tuple[int, ...], Dense]:
    """Shares of the tables of three columns whose groups are single values."""
    found = {}
    for table in fitting.tables:
        columns = fitting.columns_of(table)
        if len(columns) == 3 and all(fitting.axes[a].is_each_value for a in table.axes):
            order = np.argsort(columns)
            shares = np.maximum(table.counts, 0.0).transpose(order)
            found[tuple(sorted(columns))] = shares / max(shares.sum(), 1e-300)
    return found


def _choose(
    domain: Any, tables: dict[tuple[int, ...], Dense], tree: Sequence[tuple[int, int | None]]
) -> list[tuple[int, ...]]:
    """The tree of pairs, and the strongest tables beside it that leave the junction tree small enough."""
    from mbi.junction_tree import hypothetical_model_size

    def named(C: tuple[int, ...]) -> tuple[str, ...]:
        return tuple(f"c{i}" for i in C)

    chosen = [tuple(sorted((i, j))) for i, j in tree if j is not None]
    chosen += [(i,) for i in range(len(tree)) if not any(i in C for C in chosen)]
    most = len(chosen) + int(MOST_BESIDE * len(tree))
    strength = {C: _told(x, C, tables) for C, x in tables.items() if len(C) > 1 and C not in chosen}
    for C in sorted(strength, key=lambda own: (-strength[own], own)):
        if len(chosen) >= most:
            break
        tried = [*chosen, C]
        if prod(tables[C].shape) * 8 / 2**20 <= MOST_MEGABYTES and (
            hypothetical_model_size(domain, [named(own) for own in tried]) <= MOST_MEGABYTES
        ):
            chosen = tried
    return chosen


def _told(shares: Dense, columns: tuple[int, ...], tables: dict[tuple[int, ...], Dense]) -> float:
    """What a table says beyond smaller ones, in nats: of three columns, beyond the strongest two of its pairs."""
    if len(columns) == 2:
        return mutual_information(shares)
    whole = sum(mutual_information(np.moveaxis(shares, k, 0).reshape(shares.shape[k], -1)) for k in range(3)) / 3
    return float(whole)
