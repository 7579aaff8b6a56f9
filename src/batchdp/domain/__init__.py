"""What is public about a table: its columns, their possible values, and whose privacy is protected."""

from batchdp.domain.columns import Column, Dates, Integers, Listed, Numbers
from batchdp.domain.counted import Counted
from batchdp.domain.domain import Database, Domain, Protection, as_domain, load_domain, read_domain

__all__ = [
    "Column",
    "Counted",
    "Database",
    "Dates",
    "Domain",
    "Integers",
    "Listed",
    "Numbers",
    "Protection",
    "as_domain",
    "load_domain",
    "read_domain",
]
