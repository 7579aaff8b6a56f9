"""Reading the files that users name."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
from scipy import sparse

from batchdp.errors import WorkloadError
from batchdp.workload import Workload

READABLE = ".npy, .npz (written by scipy.sparse.save_npz) or .csv"


def read_matrix(path: Path) -> Workload:
    """A workload from a file, by its ending; nothing in the file is ever executed."""
    ending = path.suffix.lower()
    try:
        if ending == ".npy":
            with path.open("rb") as file:
                return Workload(np.load(file, allow_pickle=False))
        if ending == ".npz":
            with path.open("rb") as file:
                loaded = sparse.csr_array(sparse.load_npz(file))
            loaded.check_format(full_check=True)
            return Workload(loaded)
        if ending == ".csv":
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # an empty file: Workload says so better
                return Workload(np.loadtxt(path, delimiter=",", ndmin=2, encoding="utf-8-sig"))
    except OSError as error:
        raise WorkloadError(f"cannot read {path}: {error.strerror or error}") from error
    except WorkloadError as error:
        raise WorkloadError(f"{path}: {error}") from error
    except Exception as error:  # whatever a damaged file makes NumPy, zipfile or the tokenizer say
        hint = "numbers separated by commas, one query a line, without a header" if ending == ".csv" else READABLE
        raise WorkloadError(f"{path} does not hold a matrix; it must be {hint}") from error
    raise WorkloadError(f"{path} ends in {ending or 'nothing'}; it must be {READABLE}")
