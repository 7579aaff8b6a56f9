"""Tables in any engine: opened read-only, counted there in one pass.

The rule of the boundary: **once a schema is accepted, nothing about a value may raise, warn, change a type or change
how another record is read; and no record is looked at before the ledger is charged.** Types come from the domain. An
engine that cannot promise this is refused by its schema, or its records are read by us.

    opening    what the user gave -> Source; only names and types are looked at
    files      CSV and Parquet       ─┐
    frames     pandas, Polars, Arrow ─┴-> `cleaning`: a few types -> our own DuckDB
    duck, postgres, spark    tables that stay in their engine
    columns    do the table's types fit the declared columns? a column as declared; who is one person
    codes      the same for whole numbers without a domain, one per column, of whatever type
    coding     a record -> the numbers of its atoms, packed into few integers of 64 bits
    relations  joins, persons: the rows of capped tables become others, which are counted like a table's
    derived    columns that are computed from others, for `discover`
    values     how many units have each value of texts that nobody declared: these alone come out as they are
    counting   Source + atoms -> how many records there are of every combination, of all columns or of sets of them

Of databases only counts come into Python, and values of texts that are looked for. No error says anything that depends
on records.
"""

from batchdp.engines.counting import count, prepare_count
from batchdp.engines.opening import open_table
from batchdp.engines.relations import prepare_relation
from batchdp.engines.source import Source
from batchdp.engines.values import prepare_values

__all__ = ["Source", "count", "open_table", "prepare_count", "prepare_relation", "prepare_values"]
