"""The folder beside a page: one small script a part, read when somebody opens a table; whole or not there at all."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from batchdp.archive import check_folder, write_folder
from batchdp.errors import ReleaseError
from batchdp.release.exporting import INDEX
from batchdp.release.records import Release
from batchdp.reports.packing import Put, script_of

Progress = Callable[[float, str], object]


@contextmanager
def files_beside(release: Release, folder: Path, name: str) -> Iterator[Put]:
    """Takes the parts; the folder is in its place when all are there. One that no report wrote is never replaced.

    Args:
        release: whose tables.
        folder: where they go.
        name: what the page and every part call the release.
    """
    target = check_folder(folder, "report", INDEX, ReleaseError, overwrite=True)
    with write_folder(target, ReleaseError, overwrite=True) as beside:

        def put(key: str, content: Any) -> None:
            (beside / f"{key}.js").write_text(script_of(name, key, content), encoding="ascii")

        yield put
        mark = {"release_id": release.certificate.release_id, "about": "the tables of the page beside this folder"}
        (beside / INDEX).write_text(json.dumps(mark, indent=1), encoding="utf-8")
