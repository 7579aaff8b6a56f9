"""Engines for tests: a PostgreSQL server and a Spark session of our own, each started once a process when asked for.

What is missing is skipped, with a word on how to get it, unless BATCHDP_REQUIRE names it (`postgres,spark`): then the
test fails, as in CI. `make engines` installs all of them.
"""

from __future__ import annotations

import atexit
import importlib
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import ibis  # type: ignore[import-untyped]
import numpy as np
import polars as pl
import psycopg
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.csv as pa_csv  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from needs import require

# ── servers ──


@cache
def postgres() -> str:
    """The address of a PostgreSQL server with an empty database. It listens to a socket in a temporary folder only."""
    programs = _postgres_programs()
    folder = Path(tempfile.mkdtemp(prefix="pg-"))
    command: list[str] = []
    if os.geteuid() == 0:  # the server refuses to run as root
        user = "postgres" if any(entry.pw_name == "postgres" for entry in pwd.getpwall()) else "nobody"
        shutil.chown(folder, user)
        command = ["runuser", "-u", user, "--"]
    cluster = folder / "cluster"
    options = f"-c listen_addresses='' -k {folder} -c fsync=off"

    def run(*arguments: str | Path) -> None:
        with (folder / "output").open("ab") as output:
            subprocess.run([*command, *map(str, arguments)], check=True, cwd=folder, stdout=output, stderr=output)

    def stop() -> None:
        run(programs / "pg_ctl", "-D", cluster, "-m", "immediate", "-w", "stop")
        shutil.rmtree(folder, ignore_errors=True)

    run(programs / "initdb", "-D", cluster, "-U", "tester", "-A", "trust", "-E", "UTF8", "--no-sync")
    run(programs / "pg_ctl", "-D", cluster, "-l", cluster / "log", "-o", options, "-w", "start")
    atexit.register(stop)
    return f"postgresql://tester@/postgres?host={folder}"


def _postgres_programs() -> Path:
    folders = [Path(found).resolve().parent for found in (shutil.which("pg_ctl"), shutil.which("initdb")) if found]
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    programs = next((one for one in folders if (one / "initdb").exists() and (one / "pg_ctl").exists()), None)
    if programs is None:
        require("postgres", "initdb and pg_ctl are not installed; make engines, or apt-get install postgresql")
    return programs


@cache
def spark() -> Any:
    """A Spark session on two cores, in UTC."""
    try:
        sql = importlib.import_module("pyspark.sql")
    except ImportError:
        require("spark", "pyspark is not installed; make engines, or pip install -r requirements-spark.lock")
    if not shutil.which("java") and not os.environ.get("JAVA_HOME"):
        require("spark", "there is no Java; make engines, or apt-get install default-jre-headless")
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    warehouse = tempfile.mkdtemp(prefix="spark-")
    atexit.register(shutil.rmtree, warehouse, ignore_errors=True)
    builder = sql.SparkSession.builder.master("local[2]").appName("batchdp")
    for key, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": warehouse,
        "spark.driver.memory": "1g",
    }.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    atexit.register(session.stop)
    return session


# ── the same records in every engine ──

TABLE = "patients"
POSTGRES_TYPES = {
    "int64": "bigint",
    "int32": "integer",
    "double": "double precision",
    "float": "real",
    "string": "text",
    "bool": "boolean",
    "date32[day]": "date",
    "timestamp[us]": "timestamp",
    "decimal128(10, 2)": "numeric(10, 2)",
}


def _csv(records: Any, folder: Path) -> Any:
    pa_csv.write_csv(_written(records), folder / "patients.csv")
    return folder / "patients.csv"


def _written(records: Any) -> Any:
    """Decimals and floats as the shortest texts that read back as they were."""
    for i, field in enumerate(records.schema):
        if pa.types.is_decimal(field.type) or pa.types.is_floating(field.type):
            spelled = (lambda value: str(np.float32(value))) if pa.types.is_float32(field.type) else str
            texts = [None if value is None else spelled(value) for value in records.column(i).to_pylist()]
            records = records.set_column(i, field.name, pa.array(texts, pa.string()))
    return records


def _zipped(records: Any, folder: Path) -> Any:
    with pa.CompressedOutputStream(str(folder / "patients.csv.gz"), "gzip") as file:
        pa_csv.write_csv(_written(records), file)
    return str(folder / "patients.csv.gz")


def _tabs(records: Any, folder: Path) -> Any:
    pa_csv.write_csv(_written(records), folder / "patients.tsv", pa_csv.WriteOptions(delimiter="\t"))
    return folder / "patients.tsv"


def _parquet(records: Any, folder: Path) -> Any:
    pq.write_table(records, folder / "patients.parquet")
    return folder / "patients.parquet"


def _folder(records: Any, folder: Path) -> Any:
    middle = len(records) // 2
    for name, part in {"a/one": records[:middle], "b/c/two": records[middle:], "three": records[:0]}.items():
        path = folder / "patients" / f"{name}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(part, path)
    return folder / "patients"


def _duckdb(records: Any, folder: Path) -> Any:
    connection = duckdb.connect()
    connection.register("arrow", records)
    connection.execute(f"CREATE TABLE {TABLE} AS SELECT * FROM arrow")
    connection.unregister("arrow")
    return connection


def _database(records: Any, folder: Path) -> Any:
    path = folder / "patients.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.register("arrow", records)
        connection.execute(f"CREATE TABLE {TABLE} AS SELECT * FROM arrow")
    return path


def _postgres(records: Any, folder: Path) -> Any:
    address = postgres()
    schema = f"s{abs(hash(str(folder)))}"
    quoted = [psycopg.sql.Identifier(field.name).as_string() for field in records.schema]
    types = [POSTGRES_TYPES[str(field.type)] for field in records.schema]
    with psycopg.connect(address) as connection:
        connection.execute(f"CREATE SCHEMA {schema}".encode())
        declared = ", ".join(f"{name} {type_}" for name, type_ in zip(quoted, types, strict=True))
        connection.execute(f"CREATE TABLE {schema}.{TABLE} ({declared})".encode())
        with (
            connection.cursor() as cursor,
            cursor.copy(f"COPY {schema}.{TABLE} FROM STDIN (FORMAT CSV)".encode()) as copy,
        ):
            sink = pa.BufferOutputStream()
            options = pa_csv.WriteOptions(include_header=False)
            pa_csv.write_csv(_written(records), sink, options)
            copy.write(sink.getvalue().to_pybytes())
    return f"{address}#{schema}.{TABLE}"


def _ibis_postgres(records: Any, folder: Path) -> Any:
    schema, _, name = _postgres(records, folder).partition("#")[2].partition(".")
    return ibis_backend().table(name, database=schema)


@cache
def ibis_backend() -> Any:
    connection = psycopg.connect(postgres(), autocommit=True)
    atexit.register(connection.close)
    return ibis.postgres.from_connection(connection)


def _spark(records: Any, folder: Path) -> Any:
    return spark().createDataFrame(records)


def _spark_parquet(records: Any, folder: Path) -> Any:
    return spark().read.parquet(str(_parquet(records, folder)))


ENGINES: dict[str, Callable[[Any, Path], Any]] = {
    "csv": _csv,
    "csv.gz": _zipped,
    "tsv": _tabs,
    "parquet": _parquet,
    "folder of parquet": _folder,
    "pandas": lambda records, folder: records.to_pandas(),
    "pandas of arrow": lambda records, folder: records.to_pandas(
        types_mapper=importlib.import_module("pandas").ArrowDtype
    ),
    "polars": lambda records, folder: pl.from_arrow(records),
    "polars lazy": lambda records, folder: pl.LazyFrame(pl.from_arrow(records)),
    "pyarrow": lambda records, folder: records,
    "duckdb connection": _duckdb,
    "duckdb relation": lambda records, folder: _duckdb(records, folder).table(TABLE),
    "duckdb file": _database,
    "ibis": lambda records, folder: ibis.duckdb.from_connection(_duckdb(records, folder)).table(TABLE),
    "postgres": _postgres,
    "ibis on postgres": _ibis_postgres,
    "spark": _spark,
    "parquet on spark": _spark_parquet,
}
"""Arrow table and a folder of its own -> whatever `open_table` takes."""
ALIKE = (
    *("csv.gz", "tsv", "folder of parquet", "pandas of arrow", "polars", "polars lazy", "pyarrow"),
    *("duckdb relation", "duckdb file", "ibis on postgres"),
)
"""Engines that differ from another one mostly in how they are opened."""


ON_SPARK = (
    pytest.mark.slow,
    pytest.mark.xdist_group("spark"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # Spark leaves sockets to the garbage collector
)
"""Marks for a test that starts Spark."""


def on_spark(test: Any) -> Any:
    """Mark a whole test as one that starts Spark."""
    for mark in ON_SPARK:
        test = mark(test)
    return test


def every_engine(*without: str, slow: Sequence[str] = ()) -> pytest.MarkDecorator:
    """Run a test over all engines; those on Spark are slow, and all in one process."""

    def marks(name: str) -> list[pytest.MarkDecorator]:
        if "spark" in name:
            return list(ON_SPARK)
        grouped = [pytest.mark.xdist_group("postgres")] if "postgres" in name else []
        return [*grouped, pytest.mark.slow] if name in slow else grouped

    names = [pytest.param(name, marks=marks(name)) for name in ENGINES if name not in without]
    return pytest.mark.parametrize("engine", names)
