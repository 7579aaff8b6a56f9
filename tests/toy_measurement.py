"""A kind of measurement in one file: the number of records and nothing else. Import it and it can be released.

Every function says one thing about it, where everything else asks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from scipy import sparse

from batchdp import MatrixWorkload, Release
from batchdp.audits.attack import movements
from batchdp.audits.exact import Finding, check_arithmetic, rederive, take_apart
from batchdp.mechanism.law import NoiseLaw
from batchdp.mechanism.measure import clamp, measure
from batchdp.mechanism.prepare import quantise
from batchdp.mechanism.reader import Reader
from batchdp.privacy import LAPLACE, Budget, Noise
from batchdp.private import CellCounts
from batchdp.release.file import DECODERS, encode
from batchdp.release.verify import answers_digest, contradictions, describe, digest_of

BITS = 20


@dataclass(frozen=True, eq=False)
class CountEverybody:
    """The strategy."""

    workload: MatrixWorkload
    noise: Noise = LAPLACE


@dataclass(frozen=True)
class Everybody:
    """The one group."""

    moved: int = 1 << BITS
    bits: int = BITS
    share: Fraction = Fraction(1)
    columns: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class Total:
    """What is measured: 2^20 times the number of records."""

    workload: MatrixWorkload
    largest_total: int
    noise: Noise = LAPLACE
    slack: float = 0
    largest_part: int = 1

    @property
    def groups(self) -> tuple[Everybody, ...]:
        return (Everybody(),)

    @property
    def shares(self) -> tuple[Fraction, ...]:
        return (Fraction(1),)

    @property
    def sizes(self) -> Any:
        return np.array([1], dtype=np.int64)

    def reader(self, scales: Any) -> TotalReader:
        return TotalReader(float(scales[0]))

    def worst_bias(self, reader: Any) -> tuple[float, str]:
        return 0.0, "the total"


@dataclass(frozen=True, eq=False)
class TotalReader(Reader):
    """How the one answer is read."""

    scale: float
    names: tuple[str, ...] = ("total",)
    noise: ClassVar[Noise] = LAPLACE
    measurements: ClassVar[int] = 1

    @property
    def sizes(self) -> Any:
        return np.array([1], dtype=np.int64)

    def shape(self, table: int) -> tuple[int, ...]:
        return (1,)

    def values(self, table: int, noisy: Any) -> Any:
        return noisy.astype(np.float64) / 2.0**BITS

    def variances(self, table: int) -> Any:
        return self.law(self.rows([0])).standard_errors ** 2

    def half_widths(self, table: int, confidence: float) -> Any:
        return self.law(self.rows([0])).half_widths(confidence)

    def rows_of(self, table: int, places: Any) -> sparse.csr_array:
        return sparse.csr_array(np.full((len(places), 1), self.scale / 2.0**BITS))

    def law(self, rows: Any, times: Any = None) -> NoiseLaw:
        return NoiseLaw(rows, 1.0, LAPLACE, times)


@quantise.register
def _(strategy: CountEverybody, *, largest_total: int, budget: Budget, factor: int, exactly: bool = False) -> Any:
    return Total(strategy.workload, largest_total)


@measure.register
def _(measurement: Total, counts: CellCounts, *, exact: bool = False) -> Iterator[Any]:
    yield 0, 0, clamp(np.array([sum(counts.counts.tolist()) << BITS], dtype=object))


@describe.register
def _(measurement: Total) -> Any:
    return {"kind": "total", "cells": measurement.workload.cells}, {}


@answers_digest.register
def _(reader: TotalReader, told: Mapping[str, Any], neighbours: str) -> str:
    return digest_of({"names": ["total"], **told})


@encode.register
def _(reader: TotalReader) -> Any:
    return {"kind": "total", "scale": reader.scale}, {}


DECODERS["total"] = lambda header, arrays, certificate, most: TotalReader(float(header["scale"]))


@contradictions.register
def _(reader: TotalReader, release: Release, factor: int) -> Iterator[str]:
    if [(one.moved, one.scale) for one in release.certificate.groups] != [(factor << BITS, reader.scale)]:
        yield "its sensitivity, or its noise, is another"


@rederive.register
def _(measurement: Total) -> tuple[list[int], str]:
    one = take_apart(measurement, CellCounts(np.array([1])))
    return [abs(one[0])], "one record measured"


@check_arithmetic.register
def _(measurement: Total) -> Finding:
    same = take_apart(measurement, CellCounts(np.array([7, 2**30]))) == [(7 + 2**30) << BITS]
    return Finding("exact measurements", same, "one sum")


@movements.register
def _(measurement: Total, noises: Any) -> Any:
    return {"only measurement": {0: np.array([float(1 << BITS)])}}
