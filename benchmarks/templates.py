"""HDMM's templates on the small batches under pure ε, beside `optimize`.

    python benchmarks/templates.py [--only TEXT]

HDMM itself is not run: its three templates are written anew from their formulas, with the settings of its source at
commit 08c1ba4. They are p-Identity with p = n/16, one for each column of a product, and weighted marginals: L-BFGS-B
from a random start with ftol = 1e-4, ten sweeps over the columns of a union of products, the best of three starts.
Noise on data is beside them. Errors are root mean squared errors a query at ε = √2. Seconds are those of a processor,
for all three starts of the best template.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from scipy.optimize import minimize

from batchdp import optimize
from batchdp.linalg.matrix import dense
from batchdp.workloads.matrix import Workload
from published import SMALL, all_ranges
from reproduction.peers.batches import running_totals

Dense = NDArray[np.float64]
Random = np.random.RandomState
STARTS, SWEEPS, FTOL = 3, 10, 1e-4


def p_identity(G: Dense, random: Random) -> tuple[float, Dense]:
    """The error at sensitivity 1 for queries with this Gram matrix, and (LᵀL)⁻¹ of what was found."""
    n = len(G)
    p = max(1, n // 16)

    def objective(flat: Dense) -> tuple[float, Dense]:
        T = flat.reshape(p, n)
        s = 1 + T.sum(axis=0)
        H = G * np.outer(s, s)
        M = np.linalg.solve(np.eye(p) + T @ T.T, T)
        N = M @ H
        left = np.diag(H) - (T * N).sum(axis=0)  # the diagonal of H (I + TᵀT)⁻¹
        return float(left.sum()), (2 * left / s - 2 * (N - (N @ T.T) @ M)).reshape(-1)

    T = _least(objective, p * n, random).reshape(p, n)
    s = 1 + T.sum(axis=0)
    X = (np.eye(n) - T.T @ np.linalg.solve(np.eye(p) + T @ T.T, T)) * np.outer(s, s)
    return float(np.sum(G * X)), X


def _least(objective: Callable[[Dense], tuple[float, Dense]], size: int, random: Random) -> Dense:
    settings: Any = {"jac": True, "method": "L-BFGS-B", "bounds": [(0, None)] * size, "options": {"ftol": FTOL}}
    ended = minimize(objective, random.rand(size), **settings)
    return np.asarray(np.maximum(ended.x, 0.0))


def products(terms: list[list[Dense]], random: Random) -> float:
    """One p-Identity for every column of a union of products, each in turn at its best for the others'."""
    costs = np.array([[np.trace(G) for G in own] for own in terms])
    for _ in range(SWEEPS if len(terms) > 1 else 1):
        for i in range(costs.shape[1]):
            times = np.prod(np.delete(costs, i, axis=1), axis=1)
            together = sum((c * own[i] for c, own in zip(times, terms, strict=True)), np.zeros_like(terms[0][i]))
            _, X = p_identity(together / together.mean(), random)
            costs[:, i] = [np.sum(own[i] * X) for own in terms]
    return float(np.prod(costs, axis=1).sum())


def marginals(sizes: tuple[int, ...], asked: list[tuple[int, ...]], random: Random) -> float:
    """Weights on the tables of all sets of columns."""
    n = np.array(sizes, dtype=float)
    sets = np.array(list(np.ndindex((2,) * len(n))), dtype=bool)
    wanted = np.array([[i in own for i in range(len(n))] for own in asked])
    rest = np.prod(np.where(sets, n - 1, 1.0), axis=1)  # dimensions of every component
    below = np.all(~sets[:, None] | sets[None], axis=2)  # component × table
    seen = below / np.prod(np.where(sets, n, 1.0), axis=1)
    needed = np.all(~sets[:, None] | wanted[None], axis=2) / np.prod(np.where(wanted, n, 1.0), axis=1)
    amount = rest * needed.sum(axis=1)

    def objective(theta: Dense) -> tuple[float, Dense]:
        eigenvalues = np.maximum(seen @ theta**2, 1e-100)
        total, error = float(theta.sum()), float((amount / eigenvalues).sum())
        by_theta = -2 * theta * (seen.T @ (amount / eigenvalues**2))
        return total**2 * error, 2 * total * error + total**2 * by_theta

    return objective(_least(objective, len(sets), random))[0]


def templates(name: str, batch: Workload) -> Iterator[tuple[str, Callable[[Random], float]]]:
    """Those that fit a batch."""
    columns = {"prefix 64 × identity 16": (running_totals(64), np.eye(16)), "all ranges 32 × 32": (all_ranges(32),) * 2}
    if name in columns:
        yield "products", lambda random: products([[F.T @ F for F in columns[name]]], random)
        return
    W = dense(batch.matrix)
    yield "p-identity", lambda random: p_identity(W.T @ W, random)[0]
    yield "noise on data", lambda _: float(np.square(W).sum())
    shapes = {"(4, 7, 11, 3), 1- and 2-way": ((4, 7, 11, 3), (1, 2)), "2^8 3-way": ((2,) * 8, (3,))}
    if name in shapes:
        sizes, orders = shapes[name]
        asked = [own for order in orders for own in combinations(range(len(sizes)), order)]
        grams = [[np.eye(n) if i in own else np.ones((n, n)) for i, n in enumerate(sizes)] for own in asked]
        yield "marginals", lambda random: marginals(sizes, asked, random)
        yield "products", lambda random: products(grams, random)
    if name.startswith("400 random ranges"):
        ends = [(own.any(axis=1) * 1.0, own.any(axis=0) * 1.0) for own in W.reshape(-1, 32, 32)]
        yield "products", lambda random: products([[np.outer(a, a) for a in own] for own in ends], random)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", default="", help="batches whose name has this text")
    only = parser.parse_args().only
    table = Table("batch", "template", "templates", "seconds", "batchdp", "seconds", "")
    for name, make in SMALL.items():
        if only not in name:
            continue
        batch, found = make(), []
        for template, run in templates(name, batch):
            start = time.process_time()
            error = min(run(Random(seed)) for seed in range(STARTS))
            found.append(((error / batch.queries) ** 0.5, time.process_time() - start, template))
        start = time.process_time()
        strategy = optimize(batch)
        seconds = time.process_time() - start
        own = (strategy.expected_squared_error(epsilon=2**0.5) / batch.queries) ** 0.5
        error, took, template = min(found)
        table.add_row(name, template, f"{error:.4f}", f"{took:.2f}", f"{own:.4f}", f"{seconds:.2f}", strategy.method)
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
