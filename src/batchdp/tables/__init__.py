"""Tables in any engine: opened read-only, counted there in one pass.

    opening   what the user gave -> Source
    files, frames, duck, postgres, spark, foreign   one for each kind of engine
    kinds     do the table's types fit the declared columns?
    coding    a record -> the numbers of its atoms, packed into few integers
    counting  Source + atoms -> how many records there are of every combination

Records never come into Python; their counts do. No error says anything that depends on them.
"""

from batchdp.tables.counting import count, counting
from batchdp.tables.opening import open_table
from batchdp.tables.source import Source

__all__ = ["Source", "count", "counting", "open_table"]
