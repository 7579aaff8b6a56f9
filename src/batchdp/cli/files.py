"""Reading the files that users name."""

from __future__ import annotations

import warnings
from pathlib import Path
from zipfile import BadZipFile

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
            return Workload(np.load(path, allow_pickle=False))
        if ending == ".npz":
            return Workload(sparse.load_npz(path))
        if ending == ".csv":
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # an empty file: Workload says so better
                return Workload(np.loadtxt(path, delimiter=",", ndmin=2))
    except OSError as error:
        raise WorkloadError(f"cannot read {path}: {error.strerror or error}") from error
    except WorkloadError as error:
        raise WorkloadError(f"{path}: {error}") from error
    except (ValueError, KeyError, BadZipFile, EOFError) as error:
        first_line = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise WorkloadError(f"{path} does not hold a matrix ({first_line}); it must be {READABLE}") from error
    raise WorkloadError(f"{path} ends in {ending or 'nothing'}; it must be {READABLE}")
