"""`batchdp compare`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import batchdp
from batchdp.cli.files import AsJson, path_argument, read_workload
from batchdp.cli.show import comparison_table, console, print_json, tracked

EXAMPLES = ("batchdp compare visits.plan", "batchdp compare queries.npy --json")


def command(
    workload: Annotated[
        Path, path_argument("PLAN_OR_MATRIX", "A plan, or a matrix as .npy, .npz (scipy.sparse) or .csv.")
    ],
    as_json: AsJson = False,
) -> None:
    """Run every method on a batch and show their expected errors side by side; no data is read."""
    comparison = batchdp.compare(read_workload(workload), progress=lambda names: tracked(names, "Optimising"))
    if as_json:
        print_json(asdict(comparison))
    else:
        console().print(comparison_table(comparison, str(workload)))
