"""What is asked, as a list of tables: SQL statements and all tables of a domain, never one object an answer."""

from batchdp.asking.batch import TableBatch, tables_of
from batchdp.asking.legend import Legend
from batchdp.asking.marginals import checked_orders

__all__ = ["Legend", "TableBatch", "checked_orders", "tables_of"]
