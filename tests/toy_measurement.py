"""A kind of measurement in one file: the number of records and nothing else. Import it and it can be released.

Every function says one thing about it, where everything else asks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from batchdp import MatrixWorkload, archive
from batchdp.audits.attack import movements
from batchdp.audits.exact import check_arithmetic, rederive, take_apart
from batchdp.audits.finding import Finding
from batchdp.mechanism.law import NoiseLaw
from batchdp.mechanism.measure import clamp, measure
from batchdp.mechanism.quantise import quantise
from batchdp.privacy import LAPLACE, Budget, Noise
from batchdp.private import CellCounts
from batchdp.release.answering import Request, answered, present, say
from batchdp.release.certificate import PrivacyCertificate
from batchdp.release.digests import answers_digest, describe
from batchdp.release.file import DECODERS, encode, save_release
from batchdp.release.store import Stored
from batchdp.release.verify import answers_digest_of, contradictions, has_measured, other_values

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

    def reader(self, scales: Any) -> NoiseLaw:
        return NoiseLaw(np.eye(1), float(scales[0]) / 2.0**BITS, self.noise)

    def worst_bias(self, reader: NoiseLaw) -> tuple[float, str]:
        return 0.0, "the total"


@dataclass(frozen=True, eq=False)
class TotalRelease:
    """What the caller gets."""

    noisy: Any
    certificate: PrivacyCertificate
    confidence: float

    @property
    def value(self) -> float:
        return float(self.noisy[0]) / 2.0**BITS

    def save(self, path: Any) -> None:
        save_release(self, path)


SAID = {"names": ["total"]}


@quantise.register
def _(strategy: CountEverybody, *, largest_total: int, budget: Budget, factor: int, exactly: bool = False) -> Any:
    return Total(strategy.workload, largest_total)


@measure.register
def _(measurement: Total, counts: CellCounts, *, exact: bool = False) -> Iterator[Any]:
    yield 0, 0, clamp(np.array([sum(counts.counts.tolist()) << BITS], dtype=object))


@describe.register
def _(measurement: Total) -> Any:
    return {"kind": "total", "cells": measurement.workload.cells}, {}


@say.register
def _(measurement: Total, request: Request, digest: str) -> str:
    return answers_digest(SAID)


@present.register
def _(measurement: Total, request: Request, reader: Any, stored: Stored, confidence: float) -> TotalRelease:
    return TotalRelease(stored.noisy, stored.certificate, confidence)


@answered.register
def _(release: TotalRelease) -> Any:
    return np.array([release.value]), np.array([1.0])


@encode.register
def _(release: TotalRelease) -> Any:
    return {"kind": "total"}, {"noisy": release.noisy}


def _decode(header: Any, arrays: Any, certificate: PrivacyCertificate, confidence: float, most: Any) -> TotalRelease:
    return TotalRelease(archive.read_numbers("noisy", arrays), certificate, confidence)


DECODERS["total"] = _decode


@answers_digest_of.register
def _(release: TotalRelease) -> str:
    return answers_digest(SAID)


@has_measured.register
def _(release: TotalRelease, noisy: Any) -> bool:
    return np.array_equal(release.noisy, noisy)


@other_values.register
def _(release: TotalRelease, values: Any, standard_errors: Any) -> Iterator[str]:
    if values.tolist() != [release.value]:
        yield "its answers"


@contradictions.register
def _(release: TotalRelease, factor: int) -> Iterator[str]:
    if [one.moved for one in release.certificate.groups] != [factor << BITS]:
        yield "its sensitivity is another"


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
