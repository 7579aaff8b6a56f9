"""Strategy files: a batch of one's own, as a matrix or in factors, and what is measured for it.

As in plan files, nothing is believed: the batch is checked as if it were given anew, a strategy is refused unless it
reproduces it, and sensitivities are computed again.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from functools import singledispatch
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import sparse

from batchdp import archive
from batchdp.errors import BatchDPError, StrategyError
from batchdp.linalg.matrix import plain
from batchdp.plans import strategy_io
from batchdp.strategies.strategy import Strategy
from batchdp.workloads.kronecker import KroneckerWorkload, in_factors
from batchdp.workloads.matrix import MatrixWorkload

FORMAT = "batchdp-strategy-0.3"


def save_strategy(strategy: Strategy, path: str | os.PathLike[str]) -> None:
    """Write a strategy and its batch, in one piece or not at all."""
    archive.save(path, *_written(strategy), StrategyError)


def load_strategy(path: str | os.PathLike[str], *, most_bytes: int | None = None) -> Strategy:
    """Read a strategy that was saved. Nothing in the file is executed, and every sensitivity is computed anew.

    Args:
        path: the file.
        most_bytes: the most that it may unpack to; if left out, 64 MiB and eight times its own size.
    """
    header, arrays = archive.load(path, FORMAT, StrategyError, "strategy", most_bytes)
    try:
        workload = _READ[header["workload"]["kind"]](header["workload"], arrays, most_bytes)
        strategy = strategy_io.read(header, arrays, workload, most_bytes)
        known, parts = _written(strategy)
        archive.check_known(header, arrays, {**known, "proven": strategy_io.KEYS}, {*parts, *strategy_io.ARRAYS})
        return strategy
    except BatchDPError as error:
        raise StrategyError(f"{path} cannot be used, optimise again: {error}") from error
    except Exception as error:  # a well-made archive of something else
        raise StrategyError(f"{path} is not a strategy, or is damaged ({type(error).__name__})") from error


def _written(strategy: Strategy) -> tuple[dict[str, Any], dict[str, Any]]:
    of_workload, batch = _describe(strategy.workload)
    of_strategy, measured = strategy_io.described(strategy)
    return {"format": FORMAT, "workload": of_workload, **of_strategy}, {**batch, **measured}


@singledispatch
def _describe(workload: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """What is kept of a batch, as entries of a header and arrays."""
    raise StrategyError(f"its workload is a {type(workload).__name__}, which no file can hold")


@_describe.register
def _(workload: MatrixWorkload) -> tuple[dict[str, Any], dict[str, Any]]:
    header: dict[str, Any] = {"kind": "matrix", "names": list(workload.names), "blocks": list(workload.blocks)}
    header |= {"meetings": [list(met) for met in workload.meetings], "ends": [list(pair) for pair in workload.ends]}
    if workload.cell_names is not None:
        header["cell_names"] = list(workload.cell_names)
    arrays = archive.split_matrix("W", plain(workload.matrix))
    if workload.weights is not None:
        arrays["weights"] = workload.weights
    if workload.records is not None:
        arrays["records"] = workload.records
    if workload.structure is not None:
        header["structure"], factors = _describe(workload.structure)
        arrays |= factors
    return header, arrays


@_describe.register
def _(workload: KroneckerWorkload) -> tuple[dict[str, Any], dict[str, Any]]:
    given = [one.given for own in workload.factors for one in own]
    header = {
        "kind": "factors",
        "sizes": list(workload.sizes),
        "joint": [list(own) for own in workload.joint],
        "factors": [[None if one.given is None else len(one.given) for one in own] for own in workload.factors],
        "names": None if workload.names is None else list(workload.names),
        "column_names": None if workload.column_names is None else list(workload.column_names),
    }
    arrays = {f"table_{name}": getattr(workload, name) for name in ("starts", "columns", "chosen", "weights")}
    entries = np.concatenate([np.zeros(0), *(one.reshape(-1) for one in given if one is not None)])
    return header, {**arrays, "entries": entries}


def _read_matrix(header: Mapping[str, Any], arrays: Mapping[str, Any], most_bytes: int | None) -> MatrixWorkload:
    structure = None
    if "structure" in header:
        structure = _read_factors(header["structure"], arrays, most_bytes)
    found = MatrixWorkload(
        archive.join_matrix("W", arrays, most_bytes),
        header["names"],
        archive.read_numbers("weights", arrays) if "weights" in arrays else None,
        header["blocks"],
        structure,
        header["meetings"],
        header["ends"],
        header.get("cell_names"),
        arrays.get("records"),
    )
    if (
        structure is not None
        and sparse.csr_array(plain(structure.workload().matrix) - plain(found.matrix)).count_nonzero()
    ):
        raise StrategyError("its factors are not those of its matrix")
    return found


def _read_factors(header: Mapping[str, Any], arrays: Mapping[str, Any], most_bytes: int | None) -> KroneckerWorkload:
    """The tables, put together anew from the factors of every axis."""
    sizes, joint = [int(size) for size in header["sizes"]], [tuple(map(int, own)) for own in header["joint"]]
    axes: list[tuple[int, ...]] = [*((c,) for c in range(len(sizes))), *joint]
    entries, at = archive.read_numbers("entries", arrays), 0
    factors: list[list[Any]] = []
    for axis, own in zip(axes, header["factors"], strict=True):
        values, made = int(np.prod([sizes[c] for c in axis])), []
        for rows in own:
            if rows is None:
                made.append(np.eye(values))
                continue
            made.append(entries[at : at + rows * values].reshape(rows, values))
            at += rows * values
        factors.append(made)
    if at != len(entries):
        raise StrategyError("its factors have other sizes than their entries")
    starts, columns, chosen = (archive.read_numbers(f"table_{name}", arrays).tolist() for name in _INDICES)
    terms = [
        {axes[columns[k]]: factors[columns[k]][chosen[k]] for k in range(start, end)} for start, end in pairwise(starts)
    ]
    weights = archive.read_numbers("table_weights", arrays)
    found = in_factors(sizes, terms, names=header["names"], weights=weights)
    called = header["column_names"]
    return found if called is None else replace(found, column_names=tuple(str(name) for name in called))


_INDICES = ("starts", "columns", "chosen")
_READ = {"matrix": _read_matrix, "factors": _read_factors}
