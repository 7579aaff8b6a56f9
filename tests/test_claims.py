"""What a release claims, compared with itself and with its ledger; whose privacy it is; what a terminal is shown."""

from __future__ import annotations

import json
import math
import os
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from batchdp import (
    STRATEGIES,
    Ledger,
    Release,
    ReleaseError,
    answer,
    archive,
    load_release,
    optimize,
    plan,
    report,
    workloads,
)
from batchdp.errors import BudgetError, LedgerError
from batchdp.ledger import Reservation, StoredRelease, outputs
from batchdp.mechanism.calibrate import float_above
from batchdp.mechanism.law import NoiseLaw
from batchdp.mechanism.measurement import EVERY_ROW
from batchdp.privacy import GAUSSIAN, LAPLACE
from batchdp.release import verify as claims
from batchdp.release.file import FORMAT
from batchdp.text import sanitise
from commands import run
from mechanisms import calibrated, reread

COLUMNS = {"a": {"values": ["x", "y"]}}
TABLE = "who,a\n1,x\n1,y\n2,x\n"


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.create(tmp_path / "budget.db", epsilon=10)


def made(ledger: Ledger, release_id: str = "r", **asked: Any) -> Release:
    strategy = STRATEGIES["noise-on-data"](np.eye(3))
    return answer(strategy, [5, 0, 7], **({"epsilon": 0.5} | asked), ledger=ledger, release_id=release_id)


GROUP = ("columns", "bits", "moved", "scale", "loss")
"""What a file has of every group of a certificate, in this order."""


def edited(release: Release, path: Path, group: dict[str, Any] | None = None, **certificate: Any) -> Path:
    """By somebody who computes the digest anew."""
    release.save(path)
    header, arrays = archive.load(path, FORMAT, ReleaseError, "release")
    header["certificate"] |= certificate
    (own,) = json.loads(arrays["groups"].tobytes())
    told = json.dumps([list((dict(zip(GROUP, own, strict=True)) | (group or {})).values())])
    archive.save(path, header, arrays | {"groups": np.frombuffer(told.encode(), np.uint8)}, ReleaseError)
    return path


@pytest.mark.parametrize(
    "lie",
    [
        {"budget": 0.01},
        {"budget": 0.01, "loss": 0.01},
        {"group": {"scale": 1e9}},
        {"group": {"bits": 21}},
        {"group": {"bits": 3}},
        {"privacy": "zcdp"},
        {"privacy": "zcdp", "distribution": "Gaussian"},
        {"distribution": "K-norm"},
        {"distribution": "Cauchy"},
        {"loss": 0.4},
        {"group": {"loss": 0.4}, "loss": 0.4},
        {"group": {"loss": 0.6}, "loss": 0.6, "budget": 0.6},
        {"group": {"moved": 1}},
        {"group": {"moved": 0, "scale": 0.0, "loss": 0.0}, "loss": 0.0},
        {"measurements": 4},
        {"neighbours": "adding or removing one unit of at most 2 rows"},
        {"neighbours": "nobody"},
        {"group": {"moved": None}},
        {"group": {"columns": None}},
        {"group": {"more": 1}},
        {"budget": "0.5"},
        {"table": 7},
        {"more": 1},
    ],
)
def test_a_release_that_contradicts_itself_is_refused(lie: dict[str, Any], ledger: Ledger, tmp_path: Path) -> None:
    done = made(ledger)
    assert load_release(edited(done, tmp_path / "same")).certificate == done.certificate
    with pytest.raises(ReleaseError, match="cannot be used"):
        load_release(edited(done, tmp_path / "edited", **lie))


@pytest.mark.parametrize(
    ("lie", "named"),
    [
        ({"budget": 0.6}, "budget=0.6 where budget.db has 0.5"),
        ({"plan_digest": "0" * 64}, "plan_digest="),
        ({"table": "others"}, "table='others' where budget.db has 'counts'"),
        ({"privacy_unit": EVERY_ROW}, "privacy_unit="),
        ({"ledger_head": "0" * 64}, "ledger_head="),
        ({"largest_total": 5}, "largest_total=5"),
    ],
)
def test_a_release_that_its_ledger_contradicts_is_refused(
    lie: dict[str, Any], named: str, ledger: Ledger, tmp_path: Path
) -> None:
    done = made(ledger)
    assert report(done, tmp_path / "page.html", ledger=ledger).exists()
    loaded = load_release(edited(done, tmp_path / "edited", **lie))
    with pytest.raises(ReleaseError, match=named):
        report(loaded, tmp_path / "page.html", ledger=ledger)


def test_every_figure_edited_to_fit_is_found_by_the_ledger_alone(ledger: Ledger, tmp_path: Path) -> None:
    """A twentieth of the budget, and noise to go with it."""
    done = made(ledger)
    c = done.certificate
    (group,) = c.groups
    loss, times = math.nextafter(0.025, 0), 20 * (1 + 2.0**-50)  # the float 0.025 is a little more than the number
    less = replace(c, budget=0.025, loss=loss, groups=(replace(group, loss=loss, scale=times * group.scale),))
    scale = times * group.scale / 2.0**group.bits
    forged = replace(reread(done, {"scale": scale}), certificate=less)
    forged.save(tmp_path / "forged.release")
    loaded = load_release(tmp_path / "forged.release")
    with pytest.raises(ReleaseError, match=r"budget=0\.025 where budget\.db has 0\.5; one of them was edited"):
        report(loaded, tmp_path / "page.html", ledger=ledger)
    said = run("report", tmp_path / "forged.release", "-o", tmp_path / "page.html", "--ledger", ledger.path)
    assert said.code == 1
    assert "one of them was edited" in said.err


def test_other_measurements_are_not_those_of_the_ledger(ledger: Ledger, tmp_path: Path) -> None:
    done = made(ledger)
    moved = replace(done, noisy=done.noisy + 2**40, given=None)
    with pytest.raises(ReleaseError, match="its measurements are not those"):
        report(moved, tmp_path / "page.html", ledger=ledger)
    with pytest.raises(ReleaseError, match="answers do not follow from its measurements"):
        report(replace(done, given=done.values + 1), tmp_path / "page.html")


def test_a_release_of_another_ledger_is_said_to_be_none_of_this_one(ledger: Ledger, tmp_path: Path) -> None:
    other = Ledger.create(tmp_path / "other.db", epsilon=1)
    page = report(made(ledger), tmp_path / "page.html", ledger=other).read_text(encoding="utf-8")
    assert "This release was not charged to this ledger" in page


def test_a_ledger_whose_stored_certificate_says_less_than_was_charged(ledger: Ledger) -> None:
    done = made(ledger)
    claims.check_ledger(ledger)
    stored = ledger.stored("r")
    assert isinstance(stored, StoredRelease)
    forged = stored.output.replace(b'"budget": 0.5', b'"budget": 0.1')
    reservation = ledger.reserve("s", epsilon=0.5, plan_digest=done.certificate.plan_digest, table="counts")
    assert isinstance(reservation, Reservation)
    ledger.complete(reservation, forged)
    with pytest.raises(LedgerError, match=r"release 's' was stored with .* and charged with"):
        claims.check_ledger(ledger)
    assert run("budget", ledger.path).code == 1


NO_CERTIFICATE = b'{"format": "batchdp-output-0.3", "certificate": 1, "measurements": 0, "answers": 0}'


@pytest.mark.parametrize("output", [b"{}", b"{", NO_CERTIFICATE, b"[" * 100_000, b"\xff"])
def test_what_is_stored_and_is_no_release_is_refused_in_words(output: bytes, ledger: Ledger) -> None:
    probe = Ledger.create(ledger.path.with_name("probe"), epsilon=1)
    digest, whose = made(probe).certificate.plan_digest, made(probe).certificate.privacy_unit
    reservation = ledger.reserve("r", epsilon=0.5, plan_digest=digest, table="counts", privacy_unit=whose)
    assert isinstance(reservation, Reservation)
    ledger.complete(reservation, output)
    with pytest.raises(LedgerError, match="what the ledger has stored is not a release"):
        made(ledger)


# Whose privacy


@pytest.mark.parametrize(("unit", "named"), [(None, EVERY_ROW), ("who", "who")])
def test_everything_names_the_privacy_unit(unit: str | None, named: str, ledger: Ledger, tmp_path: Path) -> None:
    privacy = {} if unit is None else {"unit": unit}
    (tmp_path / "t.csv").write_text(TABLE)
    planned = plan("SELECT COUNT(*) AS n FROM t", {"table": "t", "privacy": privacy, "columns": COLUMNS}, cache=False)
    done = answer(planned, tmp_path / "t.csv", epsilon=0.5, ledger=ledger, release_id="r")
    assert done.certificate.privacy_unit == named
    assert [entry.privacy_unit for entry in ledger.history()] == [named]
    assert named in repr(done)
    assert (
        answer(planned, tmp_path / "t.csv", epsilon=0.5, ledger=ledger, release_id="r").certificate == done.certificate
    )
    page = report(done, tmp_path / "page.html", ledger=ledger).read_text(encoding="utf-8")
    assert (EVERY_ROW if unit is None else "whoever is behind one value of who") in page
    assert f'"privacy_unit": "{named}"' in run("budget", ledger.path, "--json").out
    planned.save(tmp_path / "p.plan")
    asked = ("--table", tmp_path / "t.csv", "-e", "0.5", "--ledger", ledger.path, "-o", tmp_path / "out.csv", "-y")
    said = run("answer", tmp_path / "p.plan", *asked)
    assert said.code == 0
    assert (
        f"Whose privacy: {'every row is a person' if unit is None else 'whoever is behind one value of who'}"
        in said.out
    )


def test_counts_of_the_callers_own_say_what_is_known(ledger: Ledger) -> None:
    assert made(ledger, rows_per_unit=3).certificate.privacy_unit == (
        "as the caller counted, at most 3 records a person"
    )


# Terminals


def test_escape_sequences_in_a_forged_ledger_do_not_reach_the_terminal(ledger: Ledger) -> None:
    evil = "\x1b[2J\x1b]0;owned\x07\u202e\x9b31m"
    from batchdp.ledger.file import LedgerFile

    with LedgerFile(ledger.path, 1.0).writing() as books:
        last = books.last()
        books.append(
            last.reserve(release_id=evil, plan_digest=evil, table=evil, unit="epsilon", requested=1.0, cost=Fraction(1))
        )
    for arguments in (("budget", ledger.path), ("budget", ledger.path, "--json")):
        said = run(*arguments)
        assert said.code == 0
        assert "x1b" in said.out or "u001b" in said.out
        for character in ("\x1b", "\x07", "\u202e", "\x9b"):
            assert character not in said.out
    assert json.loads(run("budget", ledger.path, "--json").out)["history"][0]["release_id"] == evil


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Zürich ε 😀", "Zürich ε 😀"),
        ("a\x1b[2J", "a\\x1b[2J"),
        ("\u202e", "\\u202e"),
        ("a\u00a0b", "a b"),
        ("\n", "\\x0a"),
    ],
)
def test_harmless(text: str, shown: str) -> None:
    assert sanitise(text) == shown


# Noise and intervals


@pytest.mark.parametrize("number", [2**53 + 1, 2**54 + 2, 2**60 + 1, 2**61 - 1, 2**53 - 1, 1])
def test_a_sensitivity_is_rounded_up_to_a_float(number: int) -> None:
    above = float_above(number)
    assert int(above) >= number
    assert int(above) - number <= number >> 52


def test_gaussian_noise_covers_sensitivities_that_no_float_holds() -> None:
    sensitivity = 2**54 + 1  # the nearest float is below
    made = calibrated(GAUSSIAN, sensitivity**2, 0.5)
    assert Fraction(sensitivity) ** 2 / (2 * Fraction(made.scale) ** 2) <= Fraction(0.5)


@pytest.mark.parametrize("confidence", [1e-12, 1e-6, 1e-3, 0.005, 0.01, 0.05, 0.3, 0.5, 0.95, 0.999])
def test_intervals_against_exact_quantiles(confidence: float) -> None:
    laplace = NoiseLaw(np.array([[1.0]]), 2.0, LAPLACE).half_widths(confidence)[0]
    assert laplace == pytest.approx(-2 * np.log1p(-confidence), rel=1e-3)
    both = NoiseLaw(np.array([[1.0, -1.0]]), 1.0, LAPLACE).half_widths(confidence)[0]
    inside = -np.expm1(-both) - both / 2 * np.exp(-both)  # two equal Laplace terms
    assert inside == pytest.approx(confidence, rel=1e-3)
    gauss = NoiseLaw(np.array([[1.0]]), 1.0, GAUSSIAN).half_widths(confidence)[0]
    if confidence <= 0.01:
        assert gauss == pytest.approx(confidence * np.sqrt(np.pi / 2), rel=1e-4)


# Large outputs


@pytest.fixture
def small_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "LARGEST_ROW", 10)


@pytest.mark.usefixtures("small_rows")
def test_a_large_output_is_a_file_whose_digest_is_in_the_chain(ledger: Ledger) -> None:
    done = made(ledger)
    (kept,) = outputs.folder_of(ledger.path).iterdir()
    assert np.array_equal(made(ledger).noisy, done.noisy)
    ledger.verify()
    claims.check_ledger(ledger)

    content = kept.read_bytes()
    for wrong, said in ((content[:-1], "another length"), (content[:-1] + b"!", "was changed after it was written")):
        kept.write_bytes(wrong)
        with pytest.raises(LedgerError, match=f"'r' was released, but its output .*{said}.* not drawn again"):
            made(ledger)
        with pytest.raises(LedgerError, match="was changed after it was written"):
            ledger.verify()
    kept.unlink()
    with pytest.raises(LedgerError, match=r"cannot be read \(No such file.* bring that file back"):
        made(ledger)
    ledger.verify()  # all spends are there
    assert ledger.spent == 0.5
    kept.write_bytes(content)
    assert np.array_equal(made(ledger).noisy, done.noisy)


@pytest.mark.usefixtures("small_rows")
@pytest.mark.parametrize("point", ["mkdir", "fsync", "replace"])
def test_a_full_disk_is_said_and_leaves_the_release_charged_without_output(
    point: str, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os if point == "fsync" else Path, point, full)
        with pytest.raises(
            LedgerError, match=r"No space left on device.* budget stays spent and its answers were shown"
        ):
            made(ledger)
    assert [entry.state for entry in ledger.history()] == ["reserved"]
    assert ledger.spent == 0.5
    folder = outputs.folder_of(ledger.path)
    assert not folder.exists() or list(folder.iterdir()) == []
    reservation = ledger.reserve("again", epsilon=0.5, plan_digest="p", table="t")
    assert isinstance(reservation, Reservation)
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(LedgerError, match="No space left"):
            ledger.complete(reservation, bytes(100))
    assert ledger.complete(reservation, bytes(100)).output == bytes(100)  # the same call, once there is space


@pytest.mark.usefixtures("small_rows")
def test_an_output_that_nobody_paid_for_is_not_written(ledger: Ledger) -> None:
    with pytest.raises(BudgetError, match="was not reserved in this ledger"):
        ledger.complete(Reservation("none", 0.5, "0" * 64), bytes(100))
    assert not outputs.folder_of(ledger.path).exists()


@pytest.mark.usefixtures("small_rows")
def test_a_death_between_the_file_and_its_entry_wastes_the_budget_and_shows_nothing(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = outputs.store_output

    def dies(path: Path, output: bytes) -> None:
        store(path, output)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(outputs, "store_output", dies)
        with pytest.raises(KeyboardInterrupt):
            made(ledger)
    assert [entry.state for entry in ledger.history()] == ["reserved"]
    with pytest.raises(BudgetError, match="its budget stays spent, choose a new release_id"):
        made(ledger)
    ledger.verify()


def test_answers_of_other_queries_are_refused(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "l.db", epsilon=1)
    release = answer(optimize(workloads.prefix(4)), np.arange(4), epsilon=0.5, ledger=ledger)
    reader: Any = release.reader
    y = reader.in_records(release.noisy)
    B = np.outer(np.full(4, 123456.0), y) / (y @ y)
    forged = reread(release, {"reconstruct": B})
    with pytest.raises(ReleaseError, match="is not the query"):
        claims.check_release(forged)
    claims.check_release(release)


@pytest.mark.parametrize(
    "lie",
    [
        {
            "neighbours": "adding or removing one unit of at most 0 rows",
            "group": {"moved": 0, "scale": 0.0, "loss": 0.0},
        },
        {"neighbours": "adding or removing one unit of at most \u0661 row"},
        {"neighbours": "adding or removing one unit of at most 9999999 rows"},
        {"privacy_unit": "as the caller counted, at most 3 records a person"},
        {"bias_share": 0.9},
        {"bias_share": 10**400},
        {"group": {"columns": [99]}},
        {"group": {"moved": 10**4000}},
        {"group": {"scale": 5e-324}},
    ],
)
def test_what_no_release_says_is_refused(lie: dict[str, Any], ledger: Ledger, tmp_path: Path) -> None:
    with pytest.raises(ReleaseError, match=r"cannot be used|damaged"):
        load_release(edited(made(ledger), tmp_path / "edited", **lie))


def test_a_name_that_stands_twice_is_refused(ledger: Ledger, tmp_path: Path) -> None:
    from zipfile import ZipFile

    made(ledger).save(tmp_path / "r.release")
    header, arrays = archive.load(tmp_path / "r.release", FORMAT, ReleaseError, "release")
    text = json.dumps(header).replace('"budget": 0.5', '"budget": 1e-9, "budget": 0.5')
    members = {"header": np.array(text), "digest": np.array(archive._digest(text, arrays)), **arrays}
    np.savez(tmp_path / "twice.npz", **members)
    assert ZipFile(tmp_path / "twice.npz").namelist()
    with pytest.raises(ReleaseError, match="damaged"):
        load_release(tmp_path / "twice.npz")


@pytest.mark.parametrize("noisy", ["[1" + "0" * 400 + ", 0, 0]", "[1, 0, 0]"])
def test_wide_numbers_are_for_noise_that_is_not_clamped(noisy: str, ledger: Ledger) -> None:
    made(ledger)
    stored = ledger.stored("r")
    assert stored is not None
    line, _, rest = stored.output.partition(b"\n")
    header = json.loads(line)
    start = header["groups"]
    forged = header | {"wide": True, "noisy": len(noisy)}
    output = json.dumps(forged).encode() + b"\n" + rest[:start] + noisy.encode() + rest[start + header["noisy"] :]
    from batchdp.release.file import decoded

    with pytest.raises(LedgerError, match="not a release"):
        decoded(output, "r")
