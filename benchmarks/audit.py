"""The long versions of the privacy checks: a million runs a side, a million draws, ten thousand exact examples.

`make audit` runs this and benchmarks/ledger.py; the figures of the last run stand in docs/privacy.md.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from batchdp.audits.attack import FALSE_ALARM, lower_bound, scale_finding
from batchdp.mechanism.mechanism import Mechanism, mechanism

SENSITIVITY = 2**30


def shrunk(noise: Mechanism, factor: float) -> Mechanism:
    """Noise that is `factor` times what it says."""

    def draw(values: Sequence[int]) -> list[int]:
        zero = noise.draw([0] * len(values))
        return [z + round(factor * eta) for z, eta in zip(values, zero, strict=True)]

    return replace(noise, draw=draw)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1_000_000, help="releases on each of two neighbours")
    runs = parser.parse_args().runs
    shift = np.array([SENSITIVITY])
    print(f"attack with {runs:,} runs a side, false alarm {FALSE_ALARM:g}")
    for privacy, budget, excess in (("pure", 1.0, 1.02), ("zcdp", 0.5, 1.04)):
        honest = mechanism(privacy, SENSITIVITY, budget)  # type: ignore[arg-type]
        factor = 1 / excess if privacy == "pure" else 1 / math.sqrt(excess)
        for name, noise in (("honest", honest), (f"loss × {excess}", shrunk(honest, factor))):
            start = time.perf_counter()
            proven = lower_bound(noise, shift, runs, honest.noise)
            verdict = "above the charge: noticed" if proven > budget else "within the charge"
            print(
                f"  {privacy:5} {name:12} {proven:.4f} proven of {budget} charged, {verdict} "
                f"({time.perf_counter() - start:.0f} s)"
            )
    print(f"score test on {runs:,} draws, false alarm {FALSE_ALARM:g}")
    for privacy in ("pure", "zcdp"):
        honest = mechanism(privacy, SENSITIVITY, 1.0)  # type: ignore[arg-type]
        for factor in (1.0, 0.99, 1.01):
            draws = np.array([float(z) for z in shrunk(honest, factor).draw([0] * runs)])
            finding = scale_finding(draws, honest)
            print(f"  {privacy:5} scale × {factor}: {'accepted' if finding.held else 'rejected'}, {finding.figures}")


if __name__ == "__main__":
    main()
