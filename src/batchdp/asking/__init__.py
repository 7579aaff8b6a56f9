"""What is asked, as a list of tables: SQL statements and all tables of a domain, never one object an answer."""

from batchdp.asking.asked import AskedTables, read_runs, write_runs
from batchdp.asking.batch import TableBatch, tables_of
from batchdp.asking.legend import Legend
from batchdp.asking.marginals import checked_orders

__all__ = ["AskedTables", "Legend", "TableBatch", "checked_orders", "read_runs", "tables_of", "write_runs"]
