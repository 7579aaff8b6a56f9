"""Take over points of the paper's figures from another folder of results, where this one has none.

    python -m reproduction.take_over FROM [docs/reproduction] [--replace MECHANISM]

Both must be of the same sizes and data. A mechanism that is replaced has all its figures from the other folder, which
keeps them of one state of the code. What is left is to draw the page with `make reproduce`.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from reproduction.journal import Row, locked, read_all, resume, settings_of


def taken_over(source: Path, target: Path, replaced: str = "") -> int:
    """How many points came over: what was missing, longer times that were not enough either, all of one mechanism."""
    settings = settings_of(source)
    if settings is None:
        raise SystemExit(f"{source} holds no results")
    with locked(target):
        journal = resume(target, replace(settings, seconds=0.0))
        rows = [row for row in read_all(source) if _is_more(row, journal.rows.get(row.point), replaced)]
        left = {row.point for row in journal.rows.values() if row.ok and row.mechanism == replaced}
        if left := left - {row.point for row in rows}:
            raise SystemExit(f"{source} lacks {len(left)} points of {replaced}")
        journal.add(rows)
        journal.tidy()
        resume(target, replace(settings, seconds=max((row.limit for row in rows if row.limit > 0), default=0.0)))
    return len(rows)


def _is_more(row: Row, known: Row | None, replaced: str) -> bool:
    if row.ok and row.mechanism == replaced:
        return True
    if known is None or known.ok:
        return known is None
    return row.ok or (row.limit > 0 and not row.limit <= known.limit)  # which is no number where nothing was tried


def main() -> None:
    """Take over what the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path, nargs="?", default=Path("docs/reproduction"))
    parser.add_argument("--replace", metavar="MECHANISM", default="", help="take over all of its figures")
    options = parser.parse_args()
    print(f"{taken_over(options.source, options.target, options.replace)} points")


if __name__ == "__main__":
    main()
