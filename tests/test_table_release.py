"""Releases of tables: from codes to frames and files, and what is never looked at before the charge."""

from __future__ import annotations

import json
import os
import signal
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import polars as pl
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.dataset as pa_dataset  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from numpy.typing import NDArray

import batchdp
from batchdp.errors import BudgetError, LedgerError, PrivacyParameterError, ReleaseError, TableError
from batchdp.private import Records
from batchdp.release import answering
from batchdp.release.counts import codes_of
from batchdp.release.estimates import Estimate, check_fits
from batchdp.release.verify import check_charged, check_ledger
from batchdp.strategies.residual.strategy import ResidualStrategy
from batchdp.workloads.kronecker import KroneckerWorkload
from commands import refused, succeeds
from mechanisms import released
from test_components import structure

SIZES = (4, 3, 5)


def strategy() -> ResidualStrategy:
    batch = structure(batchdp.workloads.marginals(SIZES, [0, 1, 2]))
    found = batchdp.optimize(batch, privacy="zcdp")
    assert isinstance(found, ResidualStrategy)
    return found


def codes(count: int = 300, seed: int = 0) -> NDArray[np.int64]:
    rng = np.random.default_rng(seed)
    return np.column_stack([rng.integers(0, n, count) for n in SIZES])


@pytest.fixture
def ledger(tmp_path: Path) -> batchdp.Ledger:
    return batchdp.Ledger.create(tmp_path / "ledger.db", rho=100)


def without_noise(planned: ResidualStrategy, read: Any, ledger: batchdp.Ledger, **options: Any) -> batchdp.Release:
    found: batchdp.Release = released(planned, read, ledger, 0.5, **options)
    return found


def test_a_release_has_tables_frames_and_answers(ledger: batchdp.Ledger) -> None:
    given = codes()
    release = batchdp.answer(strategy(), given, rho=50, ledger=ledger, release_id="one")
    assert isinstance(release, batchdp.Release)
    assert [table.name for table in release.tables][:2] == ["total", "a1"]
    frame = release.table(0, 2)
    assert list(frame) == ["a1", "a3", "value", "standard_error", "low", "high"]
    truth = np.bincount(given[:, 0] * 5 + given[:, 2], minlength=20)
    assert np.all(np.abs(frame["value"].to_numpy() - truth) < 6 * frame["standard_error"])
    assert np.all((frame["low"] < frame["value"]) & (frame["value"] < frame["high"]))
    assert release.table("a3", "a1").columns[:2].tolist() == ["a3", "a1"]
    assert np.allclose(frame["standard_error"] ** 2, strategy().variances("a1 × a3", rho=50)[0, 0])
    assert len(release.answers) == len(release.values) == 60 == sum(1 for _ in release.answers)
    assert release.answers[-1] == list(release.answers)[-1]
    assert [one.name for one in release.answers[:3]] == ["total", "a1 0", "a1 1"]
    assert release.answers[1].value == release.array(1)[0]
    with pytest.raises(IndexError):
        release.answers[10**6]
    wide = release.with_confidence(0.99).table(0)
    assert np.all(wide["high"] > release.table(0)["high"])
    assert "5 more" in str(release.certificate) or "2 more" in str(release.certificate)
    assert "Release(60 answers in 7 tables" in repr(release)
    assert release._repr_html_().count("<tr>") > 3
    assert release.epsilon_at(1e-6) > 0


def test_tables_are_found_by_columns_and_names(ledger: batchdp.Ledger) -> None:
    each = np.eye(3)
    batch = structure(
        batchdp.workloads.products((3, 2), [[each, None], [each[:2], None], [None, np.eye(2)]], names=["a", "b", "c"])
    )
    planned = batchdp.optimize(batch, privacy="zcdp")
    assert isinstance(planned, ResidualStrategy)
    frame = pd.DataFrame({"x": [0, 1, 2], "y": [0, 1, 1]})
    release = batchdp.answer(planned, frame, rho=1, ledger=ledger)
    assert release.column_names == ("x", "y")
    assert list(release.table("y")) == ["y", "value", "standard_error", "low", "high"]
    with pytest.raises(ReleaseError, match="2 tables have columns 'x'; give name=, one of 'a', 'b'"):
        release.table("x")
    assert len(release.table("x", name="b")) == len(release.table(name="b")) == 2
    with pytest.raises(ReleaseError, match="no table has"):
        release.table("x", "y")
    with pytest.raises(ReleaseError, match="'z' is not one of 'x', 'y'"):
        release.table("z")
    with pytest.raises(ReleaseError, match="not one of 3 tables"):
        release.array(7)


def test_the_covariance_is_that_of_explicit_matrices_or_refused(ledger: batchdp.Ledger) -> None:
    planned = strategy()
    release = batchdp.answer(planned, codes(), rho=0.5, ledger=ledger)
    B = planned.reconstruct
    assert np.allclose(release.covariance, B @ B.T, rtol=1e-6, atol=1e-8)
    large = batchdp.workloads.marginals((50, 50, 50), [3])
    found = batchdp.optimize(large.structure, privacy="zcdp")
    assert isinstance(found, ResidualStrategy)
    made = without_noise(found, lambda: Records(np.zeros((0, 3), dtype=np.int64)), ledger)
    with pytest.raises(ReleaseError, match="does not fit into memory; standard_errors"):
        _ = made.covariance


FRAMES = {
    "numpy": lambda c: c,
    "floats": lambda c: c.astype(float),
    "pandas": pd.DataFrame,
    "nullable": lambda c: pd.DataFrame(c).astype("Int64"),
    "arrow-backed": lambda c: pd.DataFrame(c, columns=list("abc")).astype("int32[pyarrow]"),
    "polars": lambda c: pl.DataFrame(c, schema=["a", "b", "c"]),
    "pyarrow": lambda c: pa.table({name: c[:, i] for i, name in enumerate("abc")}),
    "batch": lambda c: pa.RecordBatch.from_arrays([pa.array(c[:, i]) for i in range(3)], names=list("abc")),
    "small": lambda c: c.astype(np.uint8),
}


@pytest.mark.parametrize("kind", FRAMES)
def test_every_frame_is_counted_alike(kind: str, ledger: batchdp.Ledger) -> None:
    batch = strategy().workload
    given = codes(50)
    found = codes_of(FRAMES[kind](given), batch).read()
    assert np.array_equal(found.codes, given)


def test_codes_that_are_none_drop_their_record_silently() -> None:
    batch = strategy().workload
    odd = np.array(
        [[0, 1, 2], [np.nan, 1, 1], [1, 2, 4], [4, 0, 0], [0, -1, 0], [0.5, 0, 0], [np.inf, 0, 0], [3, 2, 4]]
    )
    missing = pd.DataFrame(odd).astype("Float64")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for table in (
            odd,
            pd.DataFrame(odd),
            missing,
            pl.DataFrame(odd, schema=["a", "b", "c"]),
            pa.table({name: pa.array(odd[:, i], from_pandas=True) for i, name in enumerate("abc")}),
            np.ma.masked_invalid(odd),
        ):
            assert codes_of(table, batch).read().codes.tolist() == [[0, 1, 2], [1, 2, 4], [3, 2, 4]]
        huge = np.array([[2**64 - 1, 0, 0], [1, 1, 1]], dtype=np.uint64)
        assert codes_of(huge, batch).read().codes.tolist() == [[1, 1, 1]]
        nothing = pa.table({"a": pa.array([1, None]), "b": pa.array([1, 1]), "c": pa.array([0, 0])})
        assert codes_of(nothing, batch).read().codes.tolist() == [[1, 1, 0]]


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        (np.zeros((3, 2), dtype=int), "2 columns, the batch 3"),
        (np.zeros(3, dtype=[("a", int)]), "1 columns"),
        (pd.DataFrame({"a": [1]}), "1 columns"),
        (pd.DataFrame(), "0 columns"),
        (pl.DataFrame({"a": [1]}), "1 columns"),
        (pl.DataFrame({"a": [1], "b": [1], "c": [1]}).lazy(), "collect"),
        (pa.table({"a": ["x"]}), "1 columns"),
        (pa_dataset.dataset(pa.table({"a": [1], "b": [1], "c": [1]})), "read it into a Table"),
    ],
)
def test_other_columns_and_classes_are_refused_before_the_charge(
    table: Any, problem: str, ledger: batchdp.Ledger
) -> None:
    with pytest.raises(TableError, match=problem):
        batchdp.answer(strategy(), table, rho=0.5, ledger=ledger)
    assert ledger.spent == 0


def test_counts_of_all_cells_are_records_too(ledger: batchdp.Ledger) -> None:
    planned, given = strategy(), codes()
    counts = np.bincount(np.ravel_multi_index(given.T, SIZES), minlength=60)
    release = batchdp.answer(planned, counts, rho=50, ledger=ledger)
    truth = np.bincount(given[:, 0], minlength=4)
    assert np.all(np.abs(release.array(1) - truth) < 6 * release.figures(1).standard_errors)
    with pytest.raises(PrivacyParameterError, match="60 cells"):
        batchdp.answer(planned, counts[:5], rho=1, ledger=ledger)
    many = batchdp.optimize(batchdp.workloads.marginals((10,) * 12, [1]), privacy="zcdp")
    with pytest.raises(TableError, match="give records"):
        batchdp.answer(many, counts, rho=1, ledger=ledger)


def test_a_repeat_is_reconstructed_and_costs_nothing(ledger: batchdp.Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    planned = strategy()
    first = batchdp.answer(planned, codes(), rho=1, ledger=ledger, release_id="one")
    monkeypatch.setattr(answering, "sample", lambda *_: pytest.fail("drawn again"))
    again = batchdp.answer(planned, codes(5, seed=9), rho=1, ledger=ledger, release_id="one")
    assert np.array_equal(first.noisy, again.noisy)
    assert ledger.spent == 1
    assert check_charged(first, ledger)
    check_ledger(ledger)
    with pytest.raises(BudgetError, match="requested=1"):
        batchdp.answer(planned, codes(), rho=2, ledger=ledger, release_id="one")
    with pytest.raises(BudgetError, match="plan_digest"):
        batchdp.answer(planned, codes(), rho=1, ledger=ledger, release_id="one", neighbours="replace")


def test_what_cannot_be_paid_is_refused_before_noise_is_drawn(
    ledger: batchdp.Ledger, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(answering, "sample", lambda *_: pytest.fail("drawn in vain"))
    with pytest.raises(BudgetError, match="more than is left"):
        batchdp.answer(strategy(), codes(), rho=101, ledger=ledger)
    pure = batchdp.Ledger.create(tmp_path / "pure.db", epsilon=1)
    with pytest.raises(BudgetError, match="epsilon"):
        batchdp.answer(strategy(), codes(), rho=0.5, ledger=pure)
    with pytest.raises(PrivacyParameterError, match="rho"):
        batchdp.answer(strategy(), codes(), epsilon=0.5, ledger=ledger)
    assert ledger.spent == 0


def test_the_noise_is_drawn_before_the_charge(ledger: batchdp.Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(answering, "sample", interrupted)
    with pytest.raises(KeyboardInterrupt):
        batchdp.answer(strategy(), codes(), rho=0.5, ledger=ledger)
    assert ledger.spent == 0


def test_ctrl_c_after_the_charge_loses_nothing(ledger: batchdp.Ledger) -> None:
    def read() -> Records:
        os.kill(os.getpid(), signal.SIGINT)
        return Records(codes())

    with pytest.raises(KeyboardInterrupt):
        without_noise(strategy(), read, ledger)
    (entry,) = ledger.history()
    assert entry.state == "released"
    assert ledger.stored(entry.release_id) is not None


def test_a_full_disk_is_noticed_before_the_charge(ledger: batchdp.Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(LedgerError, match="nothing was charged"):
        batchdp.answer(strategy(), codes(), rho=0.5, ledger=ledger)
    assert ledger.spent == 0
    assert [file.name for file in ledger.path.parent.iterdir()] == ["ledger.db"]


def test_what_does_not_fit_is_refused_with_its_size(tmp_path: Path) -> None:
    needed = Estimate(10, 10**12, 10**12, 10**15, 10**13, 10**13, 1e7)
    with pytest.raises(ReleaseError, match=r"1000000\.0 GB of memory.*fewer tables"):
        check_fits(needed, tmp_path / "ledger.db")
    with pytest.raises(ReleaseError, match="beside"):
        check_fits(Estimate(10, 10**12, 10**12, 0, 10**16, 10**13, 1e7), tmp_path / "ledger.db")
    assert "1,000,000,000,000 measurements" in str(needed)
    told = batchdp.estimate(strategy(), rho=0.5)
    assert (told.components, told.measurements, told.answers) == (7, 60, 60)
    with pytest.raises(PrivacyParameterError, match="neither a plan nor a strategy"):
        batchdp.estimate(np.eye(2), rho=0.5)  # type: ignore[arg-type]


@pytest.mark.parametrize("listed", [False, True])
def test_saved_releases_load_as_they_were(listed: bool, ledger: batchdp.Ledger, tmp_path: Path) -> None:
    planned: Any = strategy()
    if listed:
        prefix = np.tril(np.ones((4, 4)))
        batch = structure(batchdp.workloads.products(SIZES, [[prefix, np.eye(3), None], [None, np.eye(3), np.eye(5)]]))
        planned = batchdp.optimize(batch, privacy="zcdp")
    release = batchdp.answer(planned, codes(), rho=0.5, ledger=ledger)
    release.save(tmp_path / "a.release")
    loaded = batchdp.load_release(tmp_path / "a.release")
    assert isinstance(loaded, batchdp.Release)
    for t in range(len(release.tables)):
        assert np.array_equal(loaded.array(t), release.array(t))
        assert np.array_equal(loaded.figures(t).standard_errors, release.figures(t).standard_errors)
    assert loaded.certificate == release.certificate
    assert check_charged(loaded, ledger)


def forged(path: Path, change: Any) -> None:
    """The same file with its content changed and a digest that fits."""
    from batchdp import archive
    from batchdp.release.file import FORMAT

    header, arrays = archive.load(path, FORMAT, ReleaseError, "release")
    arrays = {name: np.array(array) for name, array in arrays.items()}
    change(header, arrays)
    archive.save(path, header, arrays, ReleaseError, compressed=False)


FORGERIES: dict[str, Any] = {
    "a smaller noise": lambda _, a: a["scales"].__imul__(0.5),
    "a smaller loss": lambda h, _: h["certificate"].update(loss=1e-9),
    "a larger budget spent": lambda h, _: h["certificate"].update(budget=1e-3),
    "other bits": lambda _, a: a["bits"].__iadd__(1),
    "other tables": lambda _, a: a["columns"].__iadd__(7),
    "fewer measurements": lambda _, a: a.update(noisy=a["noisy"][:-1]),
    "no neighbours": lambda h, _: h["certificate"].update(neighbours="nobody"),
    "another kind": lambda h, _: h.update(kind="listed"),
    "a field more": lambda h, _: h["certificate"].update(more=1),
    "a text for a number": lambda h, _: h.update(sizes="abc"),
    "orbits that are none": lambda _, a: a["orbit"].__isub__(1),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_forged_releases_are_refused(forgery: str, ledger: batchdp.Ledger, tmp_path: Path) -> None:
    path = tmp_path / "a.release"
    batchdp.answer(strategy(), codes(), rho=0.5, ledger=ledger).save(path)
    forged(path, FORGERIES[forgery])
    with pytest.raises(ReleaseError):
        batchdp.load_release(path)


def test_damaged_files_are_refused(ledger: batchdp.Ledger, tmp_path: Path) -> None:
    path = tmp_path / "a.release"
    done: Any = batchdp.answer(strategy(), codes(), rho=0.5, ledger=ledger)
    done.save(path)
    content = path.read_bytes()
    rng, refused = np.random.default_rng(0), 0
    for place in rng.integers(0, len(content), 60):
        path.write_bytes(content[:place] + bytes([content[place] ^ 0x55]) + content[place + 1 :])
        try:
            loaded: Any = batchdp.load_release(path)
        except ReleaseError:
            refused += 1
        else:  # an archive says some things twice, and others that nobody reads
            assert np.array_equal(loaded.noisy, done.noisy)
            assert str(loaded.certificate) == str(done.certificate)
    assert refused > 30
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(ReleaseError):
        batchdp.load_release(path)


def test_tables_are_exported_one_file_each(ledger: batchdp.Ledger, tmp_path: Path) -> None:
    release = batchdp.answer(strategy(), codes(), rho=0.5, ledger=ledger)
    told: list[float] = []
    files = batchdp.export(release, tmp_path / "tables", progress=lambda share, _: told.append(share))
    assert len(files) == len(release.tables)
    assert told[-1] == 1
    for t, file in enumerate(files):
        assert np.array_equal(pq.read_table(file)["value"].to_numpy(), release.array(t).reshape(-1))
    index = json.loads((tmp_path / "tables" / "tables.json").read_text())
    assert index["tables"][-1]["columns"] == ["a2", "a3"]
    with pytest.raises(ReleaseError, match="already holds files"):
        batchdp.export(release, tmp_path / "tables")
    written = batchdp.export(release, tmp_path / "tables", format="csv", overwrite=True)
    assert sorted(tmp_path.iterdir()) == sorted([ledger.path, tmp_path / "tables"])
    assert len(pd.read_csv(written[-1])) == 15
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("do not lose me")
    with pytest.raises(ReleaseError, match="no export wrote"):
        batchdp.export(release, tmp_path / "mine", overwrite=True)
    with pytest.raises(ReleaseError, match="does not exist"):
        batchdp.export(release, tmp_path / "nowhere" / "tables")
    with pytest.raises(ReleaseError, match="parquet"):
        batchdp.export(release, tmp_path / "new", format="xlsx")  # type: ignore[arg-type]


def test_an_export_that_fails_leaves_nothing(
    ledger: batchdp.Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from batchdp.release import exports

    def full(path: Path, *_: object) -> None:
        path.write_text("half")
        raise OSError(28, "No space left on device")

    release = batchdp.answer(strategy(), codes(), rho=0.5, ledger=ledger)
    monkeypatch.setitem(exports.WRITERS, "parquet", full)
    with pytest.raises(ReleaseError, match="No space"):
        batchdp.export(release, tmp_path / "tables")
    assert list(tmp_path.iterdir()) == [ledger.path]


def test_the_command_exports_both_kinds_of_releases(ledger: batchdp.Ledger, tmp_path: Path) -> None:
    batchdp.answer(strategy(), codes(), rho=0.5, ledger=ledger).save(tmp_path / "many.release")
    workload = batchdp.MatrixWorkload(np.eye(3), ["total", "by[day=1, ward=a, b]", "by[day=2, ward=c]"])
    plain = batchdp.PairStrategy(workload, np.eye(3), np.eye(3), privacy="zcdp")
    release = batchdp.answer(plain, [1, 2, 3], rho=0.5, ledger=ledger)
    release.save(tmp_path / "plain.release")
    assert [(one.name, one.columns) for one in release.tables] == [("total", ()), ("by", ("day", "ward"))]
    assert release.table("day", "ward")["ward"].tolist() == ["a, b", "c"]
    for name, count in (("many", 7), ("plain", 2)):
        said = succeeds("export", tmp_path / f"{name}.release", "-o", tmp_path / name, "--format", "csv")
        assert f"{count} tables" in said
        assert len(list((tmp_path / name).glob("*.csv"))) == count
    assert "already holds files" in refused("export", tmp_path / "many.release", "-o", tmp_path / "many")
    assert "give parquet or csv" in refused(
        "export", tmp_path / "many.release", "-o", tmp_path / "new", "--format", "xlsx", code=2
    )
    assert "open it" in succeeds("report", tmp_path / "many.release", "-o", tmp_path / "page.html")


def test_batches_that_are_no_strategy_are_still_refused(ledger: batchdp.Ledger) -> None:
    batch = strategy().workload
    assert isinstance(batch, KroneckerWorkload)
    with pytest.raises(ReleaseError, match="planned is a Workload"):
        batchdp.answer(batch, codes(), rho=0.5, ledger=ledger)  # type: ignore[arg-type]
