"""Damaged and crafted files: the right answer or an error of the exception tree, and little memory.

    python benchmarks/crafted.py                    10 000 mutations of plans, releases and ledgers
    python benchmarks/crafted.py --mutations 300

Half of the mutations flip, cut, repeat or insert bytes. The others are by somebody who knows the format: a plan or a
release is taken apart, a value of its header or an array is replaced by something odd, and the digest is computed anew;
an entry of a ledger is replaced and the hash chain computed anew. Then come files made to ask for much memory. All are
below 10 MB. Every child process reports its peak; ends with 1 if an error is of another kind or a peak above 512 MB.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import resource
import shutil
import sqlite3
import sys
import tempfile
import time
import traceback
import zipfile
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

import batchdp
from batchdp import archive
from batchdp.audits.exact import exact
from batchdp.errors import BatchDPError, PlanError, ReleaseError
from batchdp.ledger.books import GUARDS, Books
from batchdp.ledger.chain import START, Event, sha256
from batchdp.mechanism.knorm.lattice import ShapedLattice
from batchdp.mechanism.measurement import Neighbours
from batchdp.mechanism.prepare import prepare
from batchdp.mechanism.sample import sample
from batchdp.plans.file import FORMAT as PLAN
from batchdp.privacy import Budget
from batchdp.release.file import FORMAT as RELEASE
from batchdp.release.verify import check_charged, check_ledger

MOST_MEGABYTES = 512
LARGEST_FILE = 10_000_000
BATCH = 100
"""Mutations that one child process tries."""
ODD: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**53 + 1, 2**64, -(2**70), 10**400, 0.0, -0.0, 1e-320, 1e308, 0.1),
    *(float("nan"), float("inf"), -float("inf"), "", "x", "\x1b[2J\x1b]0;owned\x07", "\u202e", "\ud800", "é" * 2000),
    *("0" * 64, "pure", "zcdp", "epsilon", "rho", [], {}, [[]], [None], ["x"] * 3, {"": {}}, [1e300] * 5, ["\x00"]),
    [[[[[[[[[[]]]]]]]]]],
)
LIMITS = batchdp.ShapeLimits(directions=300)
KINDS = ("plan", "release", "ledger", "shaped plan", "shaped release")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mutations", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--verbose", action="store_true", help="say how long each part took")
    asked = parser.parse_args()
    figures: dict[str, Any] = {"mutations": 0, "refused": 0, "still good": 0, "errors outside the tree": 0}
    peak, worst = 0.0, ""
    failures: set[str] = set()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for make_files in (pristine, pristine_shaped):  # here, engines would start threads that no fork survives
            in_a_child(lambda make=make_files: make(folder))  # type: ignore[misc]
        tasks: list[tuple[str, Callable[[], dict[str, Any]]]] = []
        for start in range(0, asked.mutations, BATCH):
            count = min(BATCH, asked.mutations - start)
            kind, seed = KINDS[start // BATCH % len(KINDS)], asked.seed * 1_000_003 + start
            tasks.append((f"{kind}s of seed {seed}", lambda k=kind, s=seed, c=count: tried(folder, k, s, c)))  # type: ignore[misc]
        for label, make in CRAFTED.items():
            tasks.append((label, lambda m=make: tried_crafted(folder, m)))  # type: ignore[misc]
        for label, task in tasks:
            began = time.perf_counter()
            found = in_a_child(task, label)
            if asked.verbose:
                print(f"{label}: {time.perf_counter() - began:.1f} s, {found['megabytes']:.0f} MB", file=sys.stderr)
            for key in ("mutations", "refused", "still good", "errors outside the tree"):
                figures[key] += found[key]
            failures.update(found["failures"])
            if found["megabytes"] > peak:
                peak, worst = found["megabytes"], label
    figures |= {"largest peak, MB": round(peak), "of": worst}
    print(json.dumps(figures, indent=2))
    for failure in sorted(failures)[:20]:
        print(failure, file=sys.stderr)
    return 1 if figures["errors outside the tree"] or peak > MOST_MEGABYTES else 0


def pristine(folder: Path) -> dict[str, Any]:
    """One good file of each kind, and a plan of each kind of noise; no figures."""
    columns = {"a": {"values": ["x", "y", "z"]}, "b": {"range": [0, 9], "bins": [0, 3]}, "c": {"integers": [0, 5]}}
    domain = {"table": "t", "privacy": {"unit": "p", "rows_per_unit": 2}, "columns": columns}
    sql = "SELECT a, COUNT(*) AS n FROM t GROUP BY a; SELECT b, SUM(c) AS m FROM t WHERE a <> 'x' GROUP BY b"
    plan = batchdp.plan(sql, domain, cache=False, seconds=0.2)
    plan.save(folder / "plan")
    ledger = batchdp.Ledger.create(folder / "ledger", rho=10.0)
    table = "p,a,b,c\n" + "".join(f"{i // 2},{'xyz'[i % 3]},{i % 10},{i % 6}\n" for i in range(40))
    (folder / "t.csv").write_text(table)
    batchdp.answer(plan, folder / "t.csv", epsilon=0.5, ledger=ledger, release_id="r").save(folder / "release")
    ledger.reserve("interrupted", rho=0.1, plan_digest="p", table="t", privacy_unit="p")
    return {}


def pristine_shaped(folder: Path) -> dict[str, Any]:
    """A plan and a release with noise in the shape of the batch, beside what `pristine` made."""
    domain = batchdp.load_plan(folder / "plan").domain
    sql = "SELECT a, COUNT(*) AS n FROM t GROUP BY a; SELECT b, COUNT(*) AS m FROM t GROUP BY b"
    plan = batchdp.plan(sql, domain, cache=False, seconds=0.2, shape="any", limits=LIMITS)
    assert plan.strategy.shape is not None
    plan.save(folder / "shaped plan")
    ledger = batchdp.Ledger.open(folder / "ledger")
    batchdp.answer(plan, folder / "t.csv", epsilon=0.5, ledger=ledger, release_id="s").save(folder / "shaped release")
    return {}


def tried(folder: Path, kind: str, seed: int, count: int) -> dict[str, Any]:
    rng = random.Random(seed)
    found = Found()
    content = (folder / kind).read_bytes()
    for i in range(count):
        path = folder / f"mutant-{seed}-{i}"
        if i % 2:
            path.write_bytes(scrambled(content, rng))
        else:
            FORGERS[kind](folder, path, rng)
        found.look(kind, folder, path)
    return found.figures()


class Found:
    """What became of the mutants."""

    def __init__(self) -> None:
        self.refused = self.good = 0
        self.failures: list[str] = []

    def look(self, kind: str, folder: Path, path: Path) -> None:
        assert path.stat().st_size < LARGEST_FILE
        try:
            USERS[kind](folder, path)
            self.good += 1
        except BatchDPError as error:
            str(error)
            self.refused += 1
        except BaseException as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            self.failures.append(
                f"{kind}: {type(error).__name__} at {Path(place.filename).name}:{place.lineno}: {error}"[:300]
            )
        for left in (path, *(Path(f"{path}{end}") for end in ("-journal", "-wal", "-shm"))):
            left.unlink(missing_ok=True)

    def figures(self) -> dict[str, Any]:
        return {
            "mutations": self.refused + self.good + len(self.failures),
            "refused": self.refused,
            "still good": self.good,
            "errors outside the tree": len(self.failures),
            "failures": sorted(set(self.failures))[:5],
        }


def use_plan(_: Path, path: Path) -> None:
    plan = batchdp.load_plan(path)
    plan.standard_errors(**plan.strategy.noise.reference.arguments)
    repr(plan)
    plan._repr_html_()


def use_shaped_plan(folder: Path, path: Path) -> None:
    """What is loaded is private, in whole numbers, whatever the file says."""
    use_plan(folder, path)
    strategy = batchdp.load_plan(path).strategy
    made = prepare(strategy, Neighbours("add-remove", 2), Budget(strategy.noise, 0.5), None)
    lattice = made.measurement
    if isinstance(lattice, ShapedLattice):
        assert all(finding.held for finding in exact(made))
        if sum(body.seconds for body in lattice.bodies) < 1:
            sample(lattice, made.noises)


def use_release(folder: Path, path: Path) -> None:
    release = batchdp.load_release(path)
    assert len(release.answers) == len(release.names)
    repr(release)
    release._repr_html_()
    check_charged(release, batchdp.Ledger.open(folder / "ledger"))
    batchdp.report(release, path.with_suffix(".html")).unlink()


def use_ledger(_: Path, path: Path) -> None:
    ledger = batchdp.Ledger.open(path)
    for look in (ledger.history, ledger.__repr__, ledger._repr_html_):
        look()
    ledger.verify()
    check_ledger(ledger)
    ledger.stored("r")
    ledger.reserve("fresh", rho=0.01, plan_digest="p", table="t")


USERS: dict[str, Callable[[Path, Path], None]] = {
    "plan": use_plan,
    "release": use_release,
    "ledger": use_ledger,
    "shaped plan": use_shaped_plan,
    "shaped release": use_release,
}


def scrambled(content: bytes, rng: random.Random) -> bytes:
    """With a few bytes changed, cut out, put in or repeated."""
    changed = bytearray(content)
    for _ in range(rng.choice([1, 1, 2, 8])):
        place = rng.randrange(len(changed))
        match rng.randrange(6):
            case 0:
                changed[place] = rng.randrange(256)
            case 1:
                changed[place] ^= 1 << rng.randrange(8)
            case 2:
                del changed[place : place + rng.choice([1, 4, 100, len(changed)])]
            case 3:
                changed[place:place] = rng.randbytes(rng.choice([1, 4, 100]))
            case 4:
                changed[place : place + 4] = rng.choice([b"\xff\xff\xff\xff", b"\x00\x00\x00\x00", b"\xff\xff\xff\x7f"])
            case _:
                changed[place:place] = changed[place : place + rng.choice([8, 512, 4096])]
        if not changed:
            return b""
    return bytes(changed)


def forge_archive(source: Path, path: Path, rng: random.Random, format: str, error: type[BatchDPError]) -> None:
    header, arrays = archive.load(source, format, error, "file")
    for _ in range(rng.choice([1, 1, 1, 2])):
        if rng.random() < 0.6:
            header = replaced(header, rng)
        elif "groups" in arrays and rng.random() < 0.5:
            arrays["groups"] = replaced_groups(arrays["groups"], rng)
        else:
            name = rng.choice(list(arrays))
            arrays[name] = odd_array(arrays[name], rng)
    try:
        archive.save(path, header, arrays, error)
    except (UnicodeEncodeError, ValueError, TypeError):  # what cannot be written
        shutil.copy(source, path)


def replaced(value: Any, rng: random.Random, depth: int = 0) -> Any:
    """With one part of it, at any depth, replaced or removed."""
    if (depth and rng.random() < 0.35) or not isinstance(value, (dict, list)) or not value:
        if isinstance(value, (int, float)) and rng.random() < 0.2:
            return value * rng.choice([-1, 2, 1e9])
        return rng.choice(ODD)
    if isinstance(value, list):
        place = rng.randrange(len(value))
        return [replaced(one, rng, depth + 1) if i == place else one for i, one in enumerate(value)]
    key = rng.choice(list(value))
    if rng.random() < 0.1:
        return {name: one for name, one in value.items() if name != key}
    return {name: replaced(one, rng, depth + 1) if name == key else one for name, one in value.items()}


def replaced_groups(array: Any, rng: random.Random) -> Any:
    """The list of a certificate's groups with one part of it replaced."""
    with suppress(ValueError):  # where it was made odd before
        return np.frombuffer(json.dumps(replaced(json.loads(array.tobytes()), rng)).encode(), dtype=np.uint8)
    return array


def odd_array(array: Any, rng: random.Random) -> Any:
    flat = np.array(array)
    match rng.randrange(8):
        case 0:
            return np.zeros(0)
        case 1:
            return flat.astype(rng.choice(["<f4", "<i8", "<u8", "?", "<c16", "<U5"]))
        case 2:
            return np.append(flat, flat)
        case 3:
            return flat[: len(flat) // 2]
        case 4:
            return flat.reshape(1, -1)
        case _ if flat.size:
            flat = flat.copy()
            values = [0, -1, 1, 2**31 - 1, 10**6, 10**9, *([np.nan, np.inf] if flat.dtype.kind == "f" else [])]
            flat.flat[rng.randrange(flat.size)] = np.array(rng.choice(values)).astype(flat.dtype)
            return flat
        case _:
            return np.ones(3)


def forge_ledger(folder: Path, path: Path, rng: random.Random) -> None:
    """An entry changed, every hash computed anew, the seal renewed."""
    shutil.copy(folder / "ledger", path)
    with closing(sqlite3.connect(path)) as connection, connection:
        books = Books(connection)
        rows: list[list[Any]] = [[dict(vars(event)), books.output(event)] for event in books.all()]
        row = rng.choice(rows)
        if row[1] is not None and rng.random() < 0.5:
            row[1] = forged_output(row[1], rng)
        else:
            row[0][rng.choice(list(row[0]))] = rng.choice(ODD)
        for statement in ("DROP TRIGGER never_updated", "DROP TRIGGER never_deleted", "DELETE FROM event"):
            connection.execute(statement)
        previous = START
        for fields, output in rows:
            try:
                if fields["output_sha256"] and output is not None and rng.random() < 0.9:
                    fields["output_sha256"] = sha256(output)
                event = Event(**(fields | {"previous": previous}))
                previous = event.hash
                books.append(event, output)
            except (sqlite3.Error, TypeError, OverflowError, ValueError):
                pass  # SQLite itself does not take it
        for statement in GUARDS[1:]:
            connection.execute(statement)


def forged_output(output: bytes, rng: random.Random) -> bytes:
    """A stored release of which the header, the list of groups or the numbers are others, of a length that fits."""
    line, _, rest = output.partition(b"\n")
    header = json.loads(line)
    groups, numbers = rest[: header["groups"]], rest[header["groups"] :]
    match rng.randrange(4):
        case 0:
            return json.dumps(replaced(header, rng)).encode() + rng.choice([b"", b"\n"])
        case 1:
            numbers = bytes(8 * rng.randrange(20))
        case 2:
            groups = json.dumps(replaced(json.loads(groups), rng)).encode()
            header["groups"] = len(groups)
        case _:
            numbers = rng.choice([bytes(len(numbers)), b"\xff" * len(numbers), rng.randbytes(len(numbers))])
    return json.dumps(replaced(header, rng) if rng.random() < 0.5 else header).encode() + b"\n" + groups + numbers


FORGERS: dict[str, Callable[[Path, Path, random.Random], None]] = {
    "plan": lambda folder, path, rng: forge_archive(folder / "plan", path, rng, PLAN, PlanError),
    "release": lambda folder, path, rng: forge_archive(folder / "release", path, rng, RELEASE, ReleaseError),
    "ledger": forge_ledger,
    "shaped plan": lambda folder, path, rng: forge_archive(folder / "shaped plan", path, rng, PLAN, PlanError),
    "shaped release": lambda folder, path, rng: forge_archive(
        folder / "shaped release", path, rng, RELEASE, ReleaseError
    ),
}


# Files that ask for much memory


def tried_crafted(folder: Path, make: Callable[[Path, Path], str]) -> dict[str, Any]:
    found = Found()
    path = folder / "crafted"
    kind = make(folder, path)
    found.look(kind, folder, path)
    return found.figures()


def zeros(folder: Path, path: Path) -> str:
    """A release whose values are a billion bytes of zeros."""
    with zipfile.ZipFile(folder / "release") as source, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as target:
        for name in source.namelist():
            if name != "values.npy":
                target.writestr(name, source.read(name))
        with target.open("values.npy", "w", force_zip64=True) as member:
            np.lib.format.write_array_header_1_0(
                member, {"descr": "<f8", "fortran_order": False, "shape": (125_000_000,)}
            )
            for _ in range(125):
                member.write(bytes(8_000_000))
    return "release"


def claimed_dense(folder: Path, path: Path) -> str:
    """A plan whose matrix of no entries claims to be dense: 16 000 × 16 000."""
    header, arrays = archive.load(folder / "plan", PLAN, PlanError, "plan")
    size = 16_000
    arrays |= {"L_data": np.zeros(0), "L_indices": np.zeros(0, np.int32), "L_indptr": np.zeros(size + 1, np.int32)}
    archive.save(path, header, {**arrays, "L_shape": np.array([size, size, 1])}, PlanError)
    return "plan"


def nested(folder: Path, path: Path) -> str:
    """A plan whose header is a million lists."""
    header, arrays = archive.load(folder / "plan", PLAN, PlanError, "plan")
    archive.save(path, {**header, "blocks": [[]] * 2_000_000}, arrays, PlanError)
    return "plan"


def deep(folder: Path, path: Path) -> str:
    """A header of brackets inside brackets."""
    text = np.array('{"format":' + "[" * 100_000)
    np.savez_compressed(buffer := io.BytesIO(), header=text, digest=np.array("0" * 64))
    path.write_bytes(buffer.getvalue())
    return "plan"


def grouped(folder: Path, path: Path) -> str:
    """A plan of 4 096 groups, which were a dense matrix of 4 096 × 4 096, several times, while cells were found."""
    return unfolded(folder, path, "SELECT a, b, COUNT(*) AS n FROM t GROUP BY a, b", 64)


def running_totals(folder: Path, path: Path) -> str:
    """A plan of 3 000 running totals, with 4 500 000 entries: about the most that so small a file may ask for."""
    sql = ";".join(f"SELECT COUNT(*) AS q{i} FROM t WHERE a<={i}" for i in range(3000))
    return unfolded(folder, path, sql, 3000)


def unfolded(folder: Path, path: Path, sql: str, size: int) -> str:
    header, arrays = archive.load(folder / "plan", PLAN, PlanError, "plan")
    column = {"integers": [0, size - 1], "other": "drop"}
    header |= {"sql": sql, "domain": {"table": "t", "columns": {"a": column, "b": column}}}
    queries = 3000 if "WHERE" in sql else size * size
    header["blocks"] = [list(range(queries))]
    archive.save(path, header, {**arrays, **archive.split_matrix("L", sparse.eye_array(3, format="csr"))}, PlanError)
    return "plan"


def many_names(folder: Path, path: Path) -> str:
    """A ledger of 9 MB, almost all of it a release's name."""
    shutil.copy(folder / "ledger", path)
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in (
            "DROP TRIGGER never_updated",
            "UPDATE event SET table_name = hex(zeroblob(4400000)) WHERE number = 1",
            GUARDS[2],
        ):
            connection.execute(statement)
    return "ledger"


CRAFTED: dict[str, Callable[[Path, Path], str]] = {
    "a release of zeros": zeros,
    "a plan that claims a dense matrix": claimed_dense,
    "a plan of many lists": nested,
    "a plan of nested lists": deep,
    "a plan of groups": grouped,
    "a plan of running totals": running_totals,
    "a ledger of long names": many_names,
}


SLOW = ("a release of zeros", "a plan of groups", "a plan of running totals")
"""Which take seconds to make or to look at."""


def in_a_child(task: Callable[[], dict[str, Any]], label: str = "") -> dict[str, Any]:
    """What the task found, and the most memory that its process had."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            found = task()
            found["megabytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            os.write(writer, json.dumps(found).encode())
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        content = stream.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code == 0, f"a child process died of {code}: {label}"  # below 0 it is a signal
    return dict(json.loads(content))


if __name__ == "__main__":
    start = time.perf_counter()
    code = main()
    print(f"{time.perf_counter() - start:.0f} s", file=sys.stderr)
    sys.exit(code)
