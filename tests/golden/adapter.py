"""What the golden cases need of the package, as functions of plain data: the only module of theirs that imports it.

A case says what is given in numbers, texts and lists; nothing in its file is called like a module or a class. Whoever
moves or renames something edits this file and no other, and no figure.
"""

from __future__ import annotations

from fractions import Fraction
from math import isqrt
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from batchdp.ledger import Ledger
from batchdp.linalg.product import CellMap, Product
from batchdp.mechanism import measure as measuring
from batchdp.mechanism.amounts import AmountLattice
from batchdp.mechanism.calibrate import float_below
from batchdp.mechanism.knorm.lattice import ShapedLattice
from batchdp.mechanism.lattice import OneGroup
from batchdp.mechanism.measurement import Neighbours
from batchdp.mechanism.prepare import Mechanism, prepare
from batchdp.mechanism.reader import CellReader
from batchdp.optimizer.residual.optimizing import _strategy, optimize_products
from batchdp.optimizer.residual.search import split_by, tables_apart
from batchdp.optimizer.residual.splits import Batch
from batchdp.plans import strategy_io
from batchdp.privacy import GAUSSIAN, LAPLACE, Budget
from batchdp.private import CellCounts, Records, Tallies
from batchdp.queries import expressions
from batchdp.release.answering import Request, release
from batchdp.release.release import Release
from batchdp.strategies.pair import PairStrategy
from batchdp.strategies.shape import Group, Shape
from batchdp.workloads.kronecker import KroneckerWorkload, in_factors
from batchdp.workloads.matrix import MatrixWorkload

Given = dict[str, Any]
"""What is given of a case: see `given.py`."""

QUERIES = "the queries themselves"
"""What stands for them among what is measured."""
MOST_JOINT = 24
"""Answers of which it is looked at how they vary together."""
NOISES = {"laplace": LAPLACE, "k-norm": LAPLACE, "gaussian": GAUSSIAN}


def rebuild(given: Given) -> Any:
    """The strategy that a case stores; nothing is searched for."""
    if "sizes" in given["workload"]:
        return _over_columns(given)
    stored, workload = given["strategy"], given["workload"]
    W = MatrixWorkload(
        _matrix(workload["matrix"]),
        workload.get("names"),
        workload.get("weights"),
        workload.get("blocks"),
        meetings=workload.get("meetings"),
        ends=[tuple(pair) for pair in workload.get("ends", ())],
    )
    groups = [
        Group(Fraction(one["share"]), np.array(one["points"]), np.array(one["weights"]))
        for one in stored.get("bodies", ())
    ]
    return PairStrategy(
        W,
        _matrix(stored["measure"]),
        _matrix(stored["reconstruct"]),
        privacy=NOISES[given["noise"]].privacy,
        shape=Shape(tuple(groups)) if groups else None,
    )


def quantise(strategy: Any, given: Given) -> Mechanism:
    """On the lattice of the given cap, or of the first default that will do, with the noise for the budget."""
    return prepare(strategy, _neighbours(given), Budget(strategy.noise, given["budget"]), given["max_rows"])


def calibrate(made: Mechanism) -> list[dict[str, Any]]:
    """Every group of measurements with one noise: how much a record and a privacy unit change it, scale and loss."""
    lattice: Any = made.measurement
    norm = made.noise.norm
    found = []
    for group, own, size in zip(lattice.groups, made.noises, lattice.sizes.tolist(), strict=True):
        said = {"measurements": size, "bits": group.bits, "loss": str(Fraction(own.loss)), "scale": own.scale.hex()}
        if isinstance(lattice, ShapedLattice):
            # Whose scale was that of all bodies, whatever their shares.
            corners = sorted(map(list, group.body.vertices.T.tolist()))
            scale = float(Fraction(own.scale) * group.share).hex()
            said |= {"norm": "of the body", "corners": corners, "share": str(group.share), "scale": scale}
            found.append({**said, "record": group.moved, "unit": own.moved})
        elif isinstance(lattice, OneGroup):
            said |= {"norm": str(norm), "share": str(group.share)}
            found.append({**said, "record": _root(group.moved, norm), "unit": _root(own.moved, norm)})
        else:
            said |= {"norm": str(norm) if norm == 1 else "2, squared", "share": float(group.share).hex()}
            found.append({**said, "columns": list(group.columns), "record": group.moved, "unit": own.moved})
    return found


def _root(moved: int, norm: int) -> int:
    """A whole number to the power of a norm, and back."""
    root = moved if norm == 1 else isqrt(moved)
    assert root**norm == moved
    return root


def sizes_of_a_record(made: Mechanism) -> dict[str, int]:
    """How much one record changes all measurements of a pair, in either norm; nothing where groups say it all."""
    lattice: Any = made.measurement
    if not isinstance(lattice, OneGroup) or isinstance(lattice, ShapedLattice):
        return {}
    return {"1": lattice.column_sums, "2, squared": lattice.column_squares}


def fine_integers(made: Mechanism) -> list[list[list[int]]] | None:
    """Of amounts, for every cell and then every stretch, the integers that totals are summed in, by measurement."""
    lattice = made.measurement
    if not isinstance(lattice, AmountLattice):
        return None
    return [sorted([row, q] for row, q in column.items() if q) for column in (*lattice.levels, *lattice.slopes)]


def largest_total(made: Mechanism) -> int:
    """The public cap on records that was given, or chosen."""
    return int(made.measurement.largest_total)


def bias(made: Mechanism) -> dict[str, Any]:
    """How far every answer can be off apart from noise; over many columns, the largest share of a standard error."""
    if isinstance(made.measurement, OneGroup):
        return {"bias": made.measurement.bias_bound.tolist()}
    return {"bias_share": float(made.bias_share)}


def measure(made: Mechanism, given: Given, data: Given) -> list[int]:
    """Q x, exactly: of the counts of all cells and the sums of steps of all stretches, or of records with codes."""
    counts = _counts(given, data) if isinstance(made.measurement, OneGroup) else _records(data)
    return [int(z) for _, _, part in measuring.measure(made.measurement, counts) for z in part]


def answer_with_noise(given: Given, noise: list[int], folder: Path) -> dict[str, Any]:
    """A release of the case's data with this noise instead of a draw: what it says, and what the ledger charged."""
    strategy = rebuild(given)
    unit = strategy.noise.unit
    total: dict[str, Any] = {unit: 100_000}
    ledger = Ledger.create(folder / "ledger.db", **total)
    of_cells = isinstance(strategy, PairStrategy)
    answers = expressions.read(given["answers"], strategy.workload.queries) if "answers" in given else ()
    request = Request(
        strategy,
        lambda: _counts(given, given["data"]) if of_cells else _records(given["data"]),
        _neighbours(given),
        given["max_rows"],
        "records",
        answers=answers,
    )
    done = release(
        request,
        Budget(strategy.noise, given["budget"]),
        ledger=ledger,
        release_id="golden",
        confidence=given["confidence"],
        draw=lambda _measurement, _noises, _progress: np.array(noise, dtype=object if of_cells else np.int64),
    )
    return {**_answers(done), "certificate": _certificate(done), "charged": str(ledger.spent)}


def _answers(done: Release) -> dict[str, Any]:
    rows = [(one.name, one.value, one.standard_error, one.low, one.high) for one in done.answers]
    names, values, errors, low, high = map(list, zip(*rows, strict=True))
    ends = [[v - a, b - v] for v, a, b in zip(values, low, high, strict=True)]
    found: dict[str, Any] = {"names": names, "values": values, "standard_errors": errors, "half_widths": ends}
    if len(values) <= MOST_JOINT:
        reader = done.reader  # of all linear answers, parts of derived ones among them
        covariance = reader.law(reader.rows(range(reader.answers))).covariance
        found["covariance_sums"] = covariance.sum(axis=1).tolist()
        if isinstance(reader, CellReader):
            together = done.simultaneous()
            found["simultaneous"] = [[one.value - one.low, one.high - one.value] for one in together]
    return found


def _certificate(done: Release) -> dict[str, Any]:
    """What is said of the release as a whole; what is said of each group is what `calibrate` says."""
    said = done.certificate
    found: dict[str, Any] = {
        "privacy": said.privacy,
        "budget": float_below(Budget(said.noise, said.budget).amount).hex(),  # a float is a decimal number
        "loss": said.loss.hex(),
        "neighbours": said.neighbours,
        "privacy_unit": said.privacy_unit,
        "largest_total": said.largest_total,
        "table": said.table,
        "sampler": "own" if said.opendp == "not used" else "OpenDP",
    }
    shape = said.shape.partition("; sample")[0]
    groups: list[Any] = [[list(one.columns), one.bits, one.moved, one.scale.hex()] for one in said.groups]
    if isinstance(done.reader, CellReader):  # of which there was one, with a sensitivity that was no square
        first = said.groups[0]
        scale = first.scale
        if shape:
            scale = float(Fraction(scale) * done.reader.noise_law.shape.groups[0].share)  # type: ignore[attr-defined]
        groups = [[shape, first.bits, _root(first.moved, said.noise.norm), scale.hex()]]
        return {**found, "measurements": said.measurements, "derived": said.derived, "groups": groups}
    return {**found, "measurements": said.measurements, "groups": groups}


def search(given: Given, way: str) -> Given:
    """Residuals for a batch over many columns, of the best kind or of one that is named: for `given.py`, once."""
    workload = _batch(given["workload"])
    found = optimize_products(workload)
    if way != "best":
        batch = Batch(workload)
        terms = batch.terms(workload.weights)
        split = {i: batch.uniform(i) for i in batch.wide()}
        if way == "unevenly":  # in whole parts of 1024, as a search that improves them leaves them
            split = {i: _uneven(len(one)) for i, one in split.items()}
        found = _strategy(batch, tables_apart(batch, terms) if way == "apart" else split_by(batch, terms, split), 0.0)
    kept, arrays = strategy_io.described(found)
    header = kept["strategy"]
    if header["kind"] == "whole":
        return {"kind": "whole residuals", "shares": arrays["shares"].tolist(), "total": found.total}
    assert header["kind"] == "listed"
    groups = []
    for group in found.parts.groups:  # type: ignore[attr-defined]
        lists = [
            [
                {"orbits_of": list(p.matrix), "within": [list(s) for s in p.spread], "measure": p.measure.tolist(),
                 "recover": p.recover.tolist()}
                for p in own
            ]
            for own in group.lists
        ]  # fmt: skip
        served = None if group.tables is None else sorted(group.tables)
        groups.append({"number": group.number, "scale": group.scale, "serves": served, "lists": lists})
    averages = [one.tolist() for one in found.averages]
    return {"kind": "residuals", "averages": averages, "groups": groups, "total": found.total}


def total_of(given: Given) -> float:
    """The sum of squared errors of a strategy over many columns at unit noise: for `given.py`, once."""
    header, arrays = _kept({**given, "strategy": {"total": 0.0, **given["strategy"]}})
    found = strategy_io.add_up(strategy_io._READ[header["kind"]](header, arrays, _batch(given["workload"])))
    assert found is not None
    return found


def _uneven(orbits: int) -> Any:
    parts = np.floor(1024 * np.arange(3, 3 + orbits) / np.arange(3, 3 + orbits).sum())
    parts[0] += 1024 - parts.sum()
    return parts / 1024


def _over_columns(given: Given) -> Any:
    header, arrays = _kept(given)
    return strategy_io.read({"strategy": header}, arrays, _batch(given["workload"]))


def _kept(given: Given) -> tuple[dict[str, Any], dict[str, Any]]:
    """The stored choice as plan files have it."""
    stored = given["strategy"]
    says = {"method": "stored", "total": stored["total"], "limit": 0.0, "largest": None, "status": "converged"}
    header: dict[str, Any] = {"says": {**says, "reason": ""}}
    if stored["kind"] == "whole residuals":
        return header | {"kind": "whole"}, {"shares": np.array(stored["shares"])}
    if stored["kind"] == "residuals":
        pieces = [piece for group in stored["groups"] for own in group["lists"] for piece in own]
        groups = [
            {
                "number": group["number"],
                "scale": group["scale"],
                "tables": group["serves"],
                "lists": [[[p["orbits_of"], p["within"], len(p["measure"])] for p in own] for own in group["lists"]],
            }
            for group in stored["groups"]
        ]
        arrays = {name: _flat(piece[name] for piece in pieces) for name in ("measure", "recover")}
        return header | {"kind": "listed", "groups": groups}, {**arrays, "averages": _flat(stored["averages"])}
    listed = []
    for group in stored["groups"]:
        own = None
        if group != QUERIES:
            insides = [None if L is None else len(L) for L in group["insides"]]
            own = {"tables": len(group["weights"]), "serves": group["serves"], "insides": insides}
        listed.append(own)
    parts = [group for group in stored["groups"] if group != QUERIES]
    arrays = {
        "theta": _flat(group["weights"] for group in parts),
        "apart": _flat(group["apart"] for group in parts),
        "difference": _flat(group["difference"] for group in parts),
        "insides": _flat(L for group in parts for L in group["insides"] if L is not None),
    }
    return header | {"kind": "weighted", "groups": listed}, arrays


def _batch(workload: Given) -> KroneckerWorkload:
    sizes = workload["sizes"]
    terms = [
        [
            None if one is None else np.eye(n) if one == "each" else np.array(one)
            for one, n in zip(own, sizes, strict=True)
        ]
        for own in workload["tables"]
    ]
    return in_factors(sizes, terms, names=workload.get("names"), weights=workload.get("weights"))


def _neighbours(given: Given) -> Neighbours:
    return Neighbours(given["neighbours"], given["rows_per_unit"])


def _records(data: Given) -> Records | Tallies:
    """Records with all codes; or counted table by table, as an engine does, each with codes of its own columns."""
    codes, times = (np.array(data[name], dtype=np.int64) for name in ("codes", "times"))
    if "by" not in data:
        return Records(codes, times)
    width = range(codes.shape[1])
    return Tallies({tuple(own): Records(np.where(np.isin(width, own), codes, 0), times) for own in data["by"]})


def _counts(given: Given, data: Given) -> Any:
    return CellCounts(np.array(data["counts"], dtype=object if given["workload"].get("ends") else np.int64))


def _matrix(stored: Any) -> Any:
    """Rows of numbers; or places and values of a sparse one; or columns and which of them each cell has."""
    if isinstance(stored, list):
        return np.array(stored, dtype=np.float64)
    if "cells" in stored:
        cells = np.array(stored["cells"])
        return Product(_matrix(stored["columns"]), CellMap(cells, np.ones(len(cells)), int(cells.max()) + 1).matrix())
    places = np.array(stored["rows"]), np.array(stored["places"])
    return sparse.csr_array(sparse.coo_array((np.array(stored["values"]), places), shape=tuple(stored["shape"])))


def _flat(arrays: Any) -> Any:
    return np.concatenate([np.zeros(0), *(np.array(one, dtype=np.float64).reshape(-1) for one in arrays)])
