"""The long versions of the privacy checks: a million runs a side, a million draws, ten thousand exact examples.

`make audit` runs this and benchmarks/ledger.py; the figures of the last run stand in docs/privacy.md.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from scipy import sparse

from batchdp import MatrixWorkload
from batchdp.audits.attack import FALSE_ALARM, Draw, attack, scale_finding
from batchdp.mechanism.calibrate import calibrate
from batchdp.mechanism.lattice import Lattice
from batchdp.mechanism.measurement import Neighbours
from batchdp.mechanism.prepare import Mechanism
from batchdp.mechanism.sample import sample_independent
from batchdp.privacy import GAUSSIAN, LAPLACE, Budget, Noise

BITS = 30
"""One record changes the one measurement by 2^30."""


def honest(noise: Noise, amount: float) -> Mechanism:
    """A single count with its noise."""
    Q = sparse.csr_array(np.array([[2**BITS]], dtype=np.int64))
    lattice = Lattice(MatrixWorkload(np.eye(1)), Q, np.eye(1), BITS, 10**6, noise)
    budget = Budget(noise, amount)
    return Mechanism(lattice, calibrate(lattice, 1, budget), budget, Neighbours())


def shrunk(noise: Noise, factor: float) -> Draw:
    """Noise that is `factor` times what it says."""
    return lambda scales, sizes: np.rint(factor * sample_independent(noise, scales, sizes))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1_000_000, help="releases on each of two neighbours")
    runs = parser.parse_args().runs
    print(f"attack with {runs:,} runs a side, false alarm {FALSE_ALARM:g}")
    for noise, amount, excess in ((LAPLACE, 1.0, 1.02), (GAUSSIAN, 0.5, 1.04)):
        made = honest(noise, amount)
        factor = 1 / excess ** (1 / noise.norm)
        for name, draw in (("honest", None), (f"loss × {excess}", shrunk(noise, factor))):
            start = time.perf_counter()
            finding = next(attack(made, runs, draw))
            verdict = "within the charge" if finding.held else "above the charge: noticed"
            print(f"  {noise.privacy:5} {name:12} {finding.figures}, {verdict} ({time.perf_counter() - start:.0f} s)")
    made, factor = honest(GAUSSIAN, 0.5), 1 / 1.02
    for name, draw in (("honest", None), ("μ × 1.02", shrunk(GAUSSIAN, factor))):
        finding = next(one for one in attack(made, runs, draw) if one.check.startswith("profile"))
        verdict = "within the promise" if finding.held else "above the promise: noticed"
        print(f"  {GAUSSIAN.privacy:5} {name:12} {finding.figures}, {verdict}")
    print(f"score test on {runs:,} draws, false alarm {FALSE_ALARM:g}")
    for noise in (LAPLACE, GAUSSIAN):
        scales = honest(noise, 1.0).scales
        for factor in (1.0, 0.99, 1.01):
            draws = shrunk(noise, factor)(scales, np.array([runs]))
            finding = scale_finding(noise, draws[None] / scales)
            print(
                f"  {noise.privacy:5} scale × {factor}: {'accepted' if finding.held else 'rejected'}, {finding.figures}"
            )


if __name__ == "__main__":
    main()
