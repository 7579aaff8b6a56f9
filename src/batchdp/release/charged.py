"""What is said where something fails after the charge: what became of the budget, and nothing about records."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from batchdp.errors import BatchDPError, LedgerError, ReleaseError, TableError

T = TypeVar("T")


def paid(action: Callable[[], T], release_id: str) -> T:
    """What the action gives, from counting to storing; whatever fails in it, the error says that the budget is gone.

    The text of an error that nobody thought of may hold counts, so only its type is told, and it is no context of the
    one that is raised. Interrupts stay what they are, with a note.
    """
    charged = f"release {release_id!r} was charged before, its budget stays spent"
    kind: type[BatchDPError] = ReleaseError
    try:
        return action()
    except (TableError, LedgerError) as error:  # which never depend on records
        kind, problem = type(error), str(error)
    except Exception as error:
        problem = f"what follows the charge failed with {type(error).__name__}, whose message may show records"
    except BaseException as stop:
        stop.__cause__ = stop.__context__ = None
        stop.add_note(f"{charged}; if its answers were stored, the same release_id gives them")
        raise
    raise kind(f"{problem}; {charged} and its answers were shown to nobody: choose a new release_id")
