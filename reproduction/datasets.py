"""The three datasets of Section 6: stand-ins of the same kind, or the originals where somebody has them.

The originals are those of Hay, Rastogi, Miklau and Suciu (PVLDB 2010), who ask not to pass them on; they are read from
a folder of the user's. What the stand-ins keep is in `DATASETS`. All else about them is invented, from fixed seeds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from batchdp.archive import open_regular
from batchdp.linalg.matrix import Dense
from reproduction.errors import ReproductionError

Counts = NDArray[np.int64]
MERGED = 4096
"""The number of cells at which DPBench (Hay and others, SIGMOD 2016, Table 2) counts the empty ones."""
LARGEST = 2**40
"""Of a count in a file; sums of these are exact as floats."""


@dataclass(frozen=True)
class Dataset:
    """What is known about one dataset, and how its stand-in is made."""

    name: str
    file: str
    """In the folder of the originals: one whole number a line."""
    entries: int
    """As in the paper."""
    total: int
    known: str
    """What the stand-in keeps, and where that is known from."""
    make: Callable[[], Counts]


def _search_logs() -> Counts:
    """Searches over time: next to nothing at first, then growth with bursts."""
    rng = np.random.default_rng(2004)
    time = np.linspace(0, 1, MERGED)
    swings = np.cumsum(rng.standard_normal(MERGED)) / np.sqrt(MERGED)
    bursts = sum(rng.gamma(1.0, 1.5) * np.exp(-np.abs(time - at) * 60) for at in rng.uniform(0.3, 1.0, 12))
    weight = np.exp(3 * time + swings + bursts + 0.5 * rng.standard_normal(MERGED))
    active = np.argsort(-weight, kind="stable")[: round((1 - 0.5103) * MERGED)]
    return _spread(335_889, weight, active, 65_536, 5.0, rng)


def _net_trace() -> Counts:
    """Connections of hosts in the order of their addresses: a few busy subnets, and nothing in between."""
    rng = np.random.default_rng(2010)
    busy = np.zeros(MERGED)
    for start in rng.integers(0, MERGED - 16, size=24):
        busy[start : start + 16] += rng.random(16)
    weight = rng.pareto(1.1, MERGED) + 0.05
    active = np.argsort(-busy, kind="stable")[: round((1 - 0.9661) * MERGED)]
    return _spread(25_714, weight, active, 32_768, 0.5, rng)


def _social_network() -> Counts:
    """Numbers of friends, in ascending order."""
    rng = np.random.default_rng(11_342)
    return np.sort(np.ceil(65 * rng.weibull(1.2, 11_342)).astype(np.int64))


def _spread(
    total: int, weight: Dense, active: NDArray[np.intp], entries: int, evenness: float, rng: np.random.Generator
) -> Counts:
    """Counts that add up to the total, with something in every active block of neighbours and nothing elsewhere."""
    share = weight[active] / weight[active].sum()
    blocks = np.zeros(MERGED, dtype=np.int64)
    blocks[active] = 1 + rng.multinomial(total - active.size, share)
    width = entries // MERGED
    inside = rng.dirichlet(np.full(width, evenness), size=MERGED)
    return rng.multinomial(blocks, inside).ravel().astype(np.int64)


SEARCH_LOGS = Dataset(
    "Search Logs",
    "search_logs.txt",
    65_536,
    335_889,
    "2^16 entries (the paper), total 335,889 and 51.03 % empty cells at n = 4096 (DPBench), growth with bursts",
    _search_logs,
)
NET_TRACE = Dataset(
    "Net Trace",
    "nettrace.txt",
    32_768,
    25_714,
    "2^15 entries (the paper), total 25,714 and 96.61 % empty cells at n = 4096 (DPBench), a heavy tail in clusters",
    _net_trace,
)
SOCIAL_NETWORK = Dataset(
    "Social Network",
    "social_network.txt",
    11_342,
    702_123,
    "11,342 entries (the paper), degrees in ascending order, none 0, median 48, a fifth from 100 on (Hay and others)",
    _social_network,
)
DATASETS = (SEARCH_LOGS, NET_TRACE, SOCIAL_NETWORK)


@dataclass(frozen=True, eq=False)
class Collection:
    """The counts that a run works on, by the dataset's name."""

    counts: Mapping[str, Counts]
    originals: bool
    """Read from files, rather than stand-ins."""

    @property
    def digest(self) -> str:
        """The same for the same counts: a run must not be continued on others."""
        digest = hashlib.sha256()
        for name in sorted(self.counts):
            digest.update(name.encode() + self.counts[name].tobytes())
        return digest.hexdigest()[:16]


@cache
def stand_ins() -> Collection:
    """All three, invented."""
    return Collection({dataset.name: dataset.make() for dataset in DATASETS}, originals=False)


def originals(folder: Path, most_cells: int) -> Collection:
    """All three from files in a folder, each with at least `most_cells` entries."""
    counts = {dataset.name: read(folder / dataset.file) for dataset in DATASETS}
    for dataset in DATASETS:
        if counts[dataset.name].size < most_cells:
            raise ReproductionError(
                f"{folder / dataset.file} has {counts[dataset.name].size:,} lines, fewer than the {most_cells:,} cells "
                "of the largest workload; give the whole dataset"
            )
    return Collection(counts, originals=True)


def read(path: Path) -> Counts:
    """One whole number of at least 0 a line."""
    try:
        with open_regular(path) as file:
            lines = file.read().decode("ascii").splitlines()
    except OSError as error:
        names = ", ".join(dataset.file for dataset in DATASETS)
        raise ReproductionError(
            f"cannot read {path}: {error.strerror or error}; --data names a folder with {names}"
        ) from error
    except UnicodeDecodeError as error:
        raise ReproductionError(f"{path} is not plain text; it must hold one whole number a line") from error
    counts = np.empty(len(lines), dtype=np.int64)
    for number, line in enumerate(lines, start=1):
        text = line.strip()
        if not text.isdecimal() or len(text) > 15 or int(text) > LARGEST:
            raise ReproductionError(
                f"{path}, line {number}: {text[:40]!r} is not a count; every line must be a whole number of at least 0"
            )
        counts[number - 1] = int(text)
    return counts


def merged(counts: Counts, cells: int) -> Dense:
    """Neighbours added up in order to this many cells, of widths as equal as can be (Section 6)."""
    if not 1 <= cells <= counts.size:
        raise ReproductionError(f"cells={cells} must be between 1 and the {counts.size:,} entries of the dataset")
    starts = np.arange(cells) * counts.size // cells
    return np.add.reduceat(counts, starts).astype(np.float64)
