"""A ledger at one moment: what a dossier says about it, and what `verify` compares with the ledger itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from fractions import Fraction
from math import ulp
from typing import Any

from batchdp.checks import check_finite
from batchdp.errors import BatchDPError, DossierError
from batchdp.ledger import Entry, Ledger
from batchdp.ledger.chain import Standing
from batchdp.privacy import UNITS, Noise, shortest


@dataclass(frozen=True)
class Books(Standing):
    """Every spend of a ledger, and what they add up to."""

    @classmethod
    def of(cls, ledger: Ledger, head: str | None = None) -> Books:
        """As the ledger is now, or was when it had this head."""
        return cls(**vars(ledger.standing(head)))

    @property
    def noise(self) -> Noise:
        """The kind of noise whose budget the ledger counts in."""
        return UNITS[self.unit]

    @property
    def released(self) -> int:
        """Spends that have answers."""
        return sum(entry.state == "released" for entry in self.entries)

    def entry(self, release_id: str) -> Entry:
        """The spend of a release."""
        found = next((one for one in self.entries if one.release_id == release_id), None)
        if found is None:
            raise DossierError(f"release {release_id!r} is not among the ledger's spends")
        return found

    def as_dict(self) -> dict[str, Any]:
        """For the evidence."""
        return {**asdict(self), "entries": [asdict(entry) for entry in self.entries]}

    @classmethod
    def read(cls, content: Any) -> Books:
        """From the evidence, where anything can stand."""
        try:
            if not isinstance(content, Mapping) or set(content) != {one.name for one in fields(cls)}:
                raise DossierError("its fields are others")
            numbers = {name: check_finite(name, content[name], least=0) for name in ("total", "spent", "remaining")}
            if content["unit"] not in UNITS or not isinstance(content["head"], str):
                raise DossierError("no unit, or no head")
            entries = tuple(_entry(one) for one in content["entries"])
            total, spent, left = map(shortest, numbers.values())
            charged = sum((shortest(entry.charged) for entry in entries), Fraction(0))
            rounded = (len(entries) + 2) * Fraction(ulp(numbers["total"]))  # each figure to the next float
            if abs(charged - spent) > rounded or abs(total - spent - left) > rounded:
                raise DossierError("its spends do not add up")
            return cls(content["unit"], **numbers, head=content["head"], entries=entries)
        except (BatchDPError, TypeError, KeyError) as error:
            raise DossierError(f"the ledger in the evidence is not one ({str(error)[:100]})") from error


def _entry(content: Any) -> Entry:
    entry = Entry(**content)
    texts = (entry.release_id, entry.plan_digest, entry.table, entry.time, entry.head)
    later = (entry.privacy_unit, entry.answers_digest)
    if not all(isinstance(text, str) for text in (*texts, *(one for one in later if one is not None))):
        raise DossierError("a spend holds something else than texts")
    if entry.unit not in UNITS or entry.state not in ("reserved", "released"):
        raise DossierError("a spend of another kind")
    for name in ("requested", "charged"):
        check_finite(name, getattr(entry, name), least=0)
    return entry
