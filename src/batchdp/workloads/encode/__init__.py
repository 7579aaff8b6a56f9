"""What is asked, as a list of tables: SQL statements and all tables of a domain, never one object per answer."""

from batchdp.workloads.encode.batch import TableBatch, tables_of
from batchdp.workloads.encode.demands import checked_orders
from batchdp.workloads.encode.tables import AskedTables, Legend, read_runs, write_runs

__all__ = ["AskedTables", "Legend", "TableBatch", "checked_orders", "read_runs", "tables_of", "write_runs"]
