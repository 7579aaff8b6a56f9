"""Reading and writing the files that users name."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

import batchdp
from batchdp.cli.show import progress
from batchdp.cli.streams import LogLevel, log
from batchdp.errors import BatchDPError, LedgerError, ReleaseError, TableError, WorkloadError

if TYPE_CHECKING:
    from batchdp.ledger import Ledger
    from batchdp.release import Answer, Beside, Release
    from batchdp.release.asking import FreeAnswers
    from batchdp.workloads.matrix import MatrixWorkload, Workload


def make_beside(release: Release, *, consistent: bool, denoised: bool, whole: bool) -> Beside | None:
    """What `release.consistent()` or `release.denoised()` gives, if either is wanted."""
    if consistent and denoised:
        raise typer.BadParameter("denoised answers agree already; leave --consistent out", param_hint="--denoised")
    if denoised:
        with progress("Denoising (Ctrl-C: the best so far)") as bar:
            return release.denoised(whole=whole, progress=bar)
    if not consistent and not whole:
        return None
    with progress("Making answers agree (Ctrl-C: the best so far)") as bar:
        return release.consistent(whole=whole, progress=bar)


def list_notes(release: Release, beside: Beside | None) -> list[str]:
    """What is counted, and what the values beside the answers are not."""
    return [*release.notes, *(() if beside is None else beside.notes)]


def check_format(format: str) -> Literal["parquet", "csv"]:
    """Refuse other kinds of tables: wrong usage."""
    if format == "parquet":
        return "parquet"
    if format != "csv":
        raise typer.BadParameter("give parquet or csv", param_hint="--format")
    return "csv"


def path_argument(metavar: str, help: str) -> Any:
    """A file or folder that a command reads; the command itself says what is wrong with it."""
    return typer.Argument(metavar=metavar, help=help, readable=False)


def path_option(metavar: str, help: str, *names: str) -> Any:
    """The same as an option."""
    return typer.Option(*names, metavar=metavar, help=help, readable=False)


ReleaseFile = Annotated[Path, path_argument("RELEASE", "A .release file, or the .csv or .json with it.")]
NewFolder = Annotated[Path, path_option("FOLDER", "A new folder.", "--output", "-o")]
Charged = Annotated[Path | None, path_option("LEDGER", "What the release was charged to.", "--ledger", "-l")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object for machines.", metavar="")]
Assume = Annotated[
    list[str] | None,
    typer.Option(
        help="How many records the groups of a derived answer have, 1000 if left out: its accuracy depends on it. A "
        "number alone is for all; can be given several times.",
        metavar="NAME=N",
    ),
]
Weight = Annotated[
    list[str] | None,
    typer.Option(
        help="How much a statement or query matters, 1 if left out; can be given several times.", metavar="NAME=N"
    ),
]
ForEstimates = Annotated[
    bool,
    typer.Option(
        "--for-estimates",
        help="Weigh tables for --denoised answers at this budget; raw ones get worse, and it says by how much.",
        metavar="",
    ),
]
ForRecords = Annotated[
    bool,
    typer.Option(
        "--for-records",
        help="Weigh tables for synthetic records: all of up to two columns unless --marginals says otherwise, "
        "and those of the SQL.",
        metavar="",
    ),
]
Given = Annotated[
    list[Path] | None,
    typer.Option(
        "--given",
        help="A release about the same records, to combine with: measure what it lacks. Can be given several times.",
        metavar="RELEASE",
        show_default=False,
    ),
]
Releases = Annotated[
    int, typer.Option(help="Say what this many releases cost together, one per snapshot.", metavar="N", min=1)
]
Records = Annotated[
    int | None,
    typer.Option(
        help="Roughly how many records there are, for --for-estimates and --for-records; max_rows if left out.",
        metavar="N",
        min=1,
    ),
]
ImplyingRho = Annotated[
    float | None,
    typer.Option(
        "--rho", help="The budget for Gaussian noise, where it is not the ρ = ε²/2 that ε implies.", metavar="R"
    ),
]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Say the rest too: all rules of what is counted.", metavar="")
]
Log = Annotated[
    LogLevel,
    typer.Option(
        "--log-level",
        help="info says on stderr how long it took, debug also what was tried; never anything about the records.",
        expose_value=False,
        callback=log,
    ),
]
All = Annotated[bool, typer.Option("--all", help="Print every row of every table.", metavar="")]
Epsilon = Annotated[
    float | None, typer.Option("--epsilon", "-e", help="The privacy budget ε; 0.1 to 1 is usual.", metavar="E")
]
Rho = Annotated[float | None, typer.Option("--rho", help="The budget ρ, for plans with Gaussian noise.", metavar="R")]
Share = Annotated[str | None, typer.Option(help="The share of the ledger that is charged.", metavar="NAME")]
Snapshot = Annotated[
    str | None, typer.Option(help="Which state of the table this is, such as 2026-11.", metavar="LABEL")
]
Delta = Annotated[
    float | None,
    typer.Option("--delta", help="With --epsilon: the δ, far below one over the number of people.", metavar="D"),
]
Plan = Annotated[Path, path_argument("PLAN", "A plan written by `batchdp plan`.")]

WantConsistent = Annotated[
    bool,
    typer.Option("--consistent", help="Add answers that agree with one another and are never negative.", metavar=""),
]
WantDenoised = Annotated[
    bool, typer.Option("--denoised", help="Add estimates with smaller errors, biased, without intervals.", metavar="")
]
Whole = Annotated[
    bool,
    typer.Option(
        "--whole", help="Round these to whole numbers; by itself, the same as --consistent --whole.", metavar=""
    ),
]


def either(epsilon: float | None, rho: float | None, delta: float | None = None) -> None:
    """Refuse neither and both, and a δ beside ρ: wrong usage, whatever the plan is."""
    if delta is not None and epsilon is None:
        raise typer.BadParameter("goes with --epsilon; ρ stands for every δ", param_hint="--delta")
    if (epsilon is None) == (rho is None):
        given = "neither is" if epsilon is None else "both are"
        raise typer.BadParameter(
            f"{given} given; give one, such as --epsilon 0.5 (--rho for Gaussian noise)", param_hint="--epsilon, --rho"
        )


class ShapeChoice(StrEnum):
    """Shapes of noise that can be asked for."""

    pair = "pair"
    any = "any"


Shape = Annotated[
    ShapeChoice,
    typer.Option(help="Laplace noise on a pair, or noise in the shape of the batch where that is clearly better."),
]
ShapeRank = Annotated[
    int, typer.Option(help="Measurements that may share a shape: more take longer to draw.", metavar="K", min=1)
]
Seconds = Annotated[
    float | None,
    typer.Option(help="How long to look for a strategy; it follows from the batch's size if left out.", metavar="S"),
]
DrawSeconds = Annotated[
    float, typer.Option(help="The most time that a draw of shaped noise may take, as estimated.", metavar="S")
]


READABLE = ".npy, .npz (written by scipy.sparse.save_npz) or .csv"
RELEASE_ENDINGS = (".csv", ".json", ".release")
LEDGER = b"SQLite format 3\0"
"""How its file begins."""


def tables_named(given: Sequence[str]) -> str | dict[str, str]:
    """The table, or of several by their names, as NAME=T says; what has a name is no path that exists as it is."""
    pairs = [one.partition("=") for one in given]
    if len(given) == 1 and (not pairs[0][1] or not pairs[0][0].isidentifier() or Path(given[0]).exists()):
        return given[0]
    if not all(mark and name and path for name, mark, path in pairs) or len({name for name, _, _ in pairs}) < len(
        pairs
    ):
        raise TableError("--table is given more than once; name each table once, like --table visits=visits.csv")
    return {name: path for name, _, path in pairs}


def check_output(
    path: Path, error: type[BatchDPError], endings: tuple[str, ...] = (), *, inputs: Iterable[str | Path | None] = ()
) -> None:
    """Refuse an output that could not be written, or would replace an input or a ledger, before anything is spent."""
    from batchdp.archive import open_regular

    if endings and path.suffix.lower() not in endings:
        raise error(f"{path} ends in {path.suffix or 'nothing'}; the output must be one of {', '.join(endings)}")
    if path.is_dir():
        raise error(f"{path} is a folder; name a file in it")
    if not path.parent.is_dir():
        raise error(f"the folder of {path} does not exist; create {path.parent} first")
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise error(f"{path} is a link or a device; name a plain file")
    for given in inputs:
        if given is not None and path.exists() and os.path.exists(given) and path.samefile(given):
            raise error(f"{path} is read by this command and would be overwritten; name another output")
    if path.exists() and not os.access(path, os.W_OK):
        raise error(f"{path} cannot be written: no permission")
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
        if path.exists():
            with open_regular(path) as file:
                if file.read(len(LEDGER)) == LEDGER:
                    raise error(f"{path} is a ledger or another database and would be overwritten; name another output")
    except OSError as failure:
        raise error(f"{path} cannot be written: {failure.strerror or failure}") from failure


def write_release(release: Release, output: Path) -> Path:
    """The answers in the form that the ending asks for, and the whole release beside them; returns where that is."""
    release_file = output.with_suffix(".release")
    release.save(release_file)
    write_answers(release, output)
    return release_file


def write_answers(release: Release, output: Path, beside: Beside | None = None) -> None:
    """The answers, with other values beside them if there are; a .release holds neither."""
    from batchdp.archive import write_atomically

    if output.suffix.lower() == ".json":
        rows = [dict(row) for row in _list_rows(release, beside)]
        write_atomically(output, json.dumps(rows, indent=2, ensure_ascii=False).encode(), ReleaseError)
    elif output.suffix.lower() == ".csv":
        from batchdp.release.exports import no_formula

        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        more = (beside.heading, "interval_of") if beside is not None else ()
        writer.writerow(("name", "value", "standard_error", "low", "high", "derived", *more))
        for row in _list_rows(release, beside):
            derived = str(row["derived"]).lower()
            writer.writerow((no_formula(row.pop("name")), *{**row, "derived": derived}.values()))
        write_atomically(output, text.getvalue().encode(), ReleaseError)
        write_atomically(described(output), _description(release, output, beside).encode(), ReleaseError)


def described(output: Path) -> Path:
    """Where programs look for what is said of a CSV file (CSV on the Web): beside it, under its name."""
    return output.with_name(f"{output.name}-metadata.json")


def _description(release: Release, output: Path, beside: Beside | None) -> str:
    """What the columns of answers are and what is counted, which has no place in the file itself."""
    of_noise = f"of the {100 * release.confidence:g} % interval around value, which is of the noise alone"
    said = {
        "name": "what the answer is called",
        "value": "the private answer: a count or sum plus noise, or computed from some of these",
        "standard_error": "of the noise in value; approximate for a derived answer, and empty for a quantile",
        "low": f"lower end {of_noise}",
        "high": f"upper end {of_noise}",
        "derived": "whether value is computed from noisy counts or sums",
    }
    if beside is not None:
        said |= {beside.heading: beside.meaning, "interval_of": "which column the interval is of"}
    notes = list_notes(release, beside)
    content = {
        "@context": "http://www.w3.org/ns/csvw",
        "url": output.name,
        "dc:title": f"Private answers about {release.certificate.table}",
        "dc:identifier": release.certificate.release_id,
        **({"rdfs:comment": notes} if notes else {}),
        "tableSchema": {"columns": [{"titles": name, "dc:description": text} for name, text in said.items()]},
    }
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def _list_rows(release: Release, beside: Beside | None) -> Iterator[dict[str, Any]]:
    """The answers as the SQL shows them; where there are two values, each row says which the interval is of."""
    from batchdp.release.shown import places

    answers = iter(release.answers) if not release.views else (release.answers[k] for k in places(release))
    if beside is None:
        yield from map(_row, answers)
        return
    values = beside.each() if not release.views else iter(beside.values[places(release)].tolist())
    for answer, value in zip(answers, values, strict=True):
        yield {**_row(answer), beside.heading: _known(value), "interval_of": "value"}


def _row(answer: Answer) -> dict[str, Any]:
    """An answer with nothing in the place of what is not determined."""
    return {name: _known(figure) for name, figure in asdict(answer).items()}


def _known(figure: Any) -> Any:
    return None if isinstance(figure, float) and math.isnan(figure) else figure


def free_as_json(release: FreeAnswers) -> dict[str, Any]:
    """What follows from a release, and what does not."""
    return {
        "answers": list(_list_rows(release, None)),
        "notes": list_notes(release, None),
        "confidence": release.confidence,
        "release_id": release.certificate.release_id,
        "missing": [asdict(one) for one in release.missing],
    }


def answers_as_json(release: Release, ledger: Ledger, beside: Beside | None = None) -> dict[str, Any]:
    """The answers with their certificate."""
    return {
        "answers": list(_list_rows(release, beside)),
        "notes": list_notes(release, beside),
        "confidence": release.confidence,
        "certificate": release.certificate.as_dict(),
        "remaining": ledger.remaining,
    }


def find_release(path: Path) -> Path:
    """A release file, or the one beside answers in CSV or JSON."""
    if path.suffix.lower() not in (".csv", ".json"):
        return path
    release_file = path.with_suffix(".release")
    if not release_file.exists():
        raise ReleaseError(
            f"{path} has no {release_file.name} beside it; `batchdp answer` writes both, and the page needs it"
        )
    return release_file


def open_ledger(path: Path) -> Ledger:
    """The ledger, or how to make one."""
    if not path.exists():
        raise LedgerError(f"there is no ledger {path}; create it with: batchdp budget {path} --create --epsilon 1")
    return batchdp.Ledger.open(path)


def read_workload(path: Path) -> Workload:
    """The workload of a plan, or one from a matrix."""
    from batchdp.archive import read_format

    return read_matrix(path) if read_format(path) is None else batchdp.load_plan(path).asked_workload


def read_matrix(path: Path) -> MatrixWorkload:
    """A workload from a file, by its ending; nothing in the file is ever executed."""
    import numpy as np
    from scipy import sparse

    from batchdp.archive import open_regular
    from batchdp.workloads.matrix import MatrixWorkload

    ending = path.suffix.lower()
    try:
        if ending == ".npy":
            with open_regular(path) as file:
                _check_header(file)
                return MatrixWorkload(np.load(file, allow_pickle=False))
        if ending == ".npz":
            with open_regular(path) as file:
                loaded: Any = sparse.load_npz(file)
            if hasattr(loaded, "indptr"):  # before anything follows the pointers, of which SciPy does not check all
                if np.any(np.diff(loaded.indptr.astype(np.int64)) < 0):
                    raise ValueError("pointers that go back")
                loaded.check_format(full_check=True)
            return MatrixWorkload(sparse.csr_array(loaded))
        if ending == ".csv":
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # an empty file: Workload says so better
                with open_regular(path) as file:
                    return MatrixWorkload(np.loadtxt(file, delimiter=",", ndmin=2, encoding="utf-8-sig"))
    except OSError as error:
        raise WorkloadError(f"cannot read {path}: {error.strerror or error}") from error
    except WorkloadError as error:
        raise WorkloadError(f"{path}: {error}") from error
    except MemoryError:
        raise
    except Exception as error:  # whatever a damaged file makes NumPy, zipfile or the tokenizer say
        hint = "numbers separated by commas, one query per line, without a header" if ending == ".csv" else READABLE
        raise WorkloadError(f"{path} does not hold a matrix; it must be {hint}") from error
    if not path.exists():
        raise WorkloadError(f"cannot read {path}: No such file or directory")
    raise WorkloadError(f"{path} is not a plan and ends in {ending or 'nothing'}; a matrix must be {READABLE}")


def _check_header(file: Any) -> None:
    """Refuse an array by the size that its file declares, before any of it is read."""
    from numpy.lib import format as npy

    from batchdp.linalg.matrix import check_size

    headers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
    read = headers.get(npy.read_magic(file))
    shape = () if read is None else read(file)[0]
    if len(shape) == 2:
        check_size(*shape)
    file.seek(0)
