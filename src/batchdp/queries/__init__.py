"""Linear queries as values: what a record must fulfil to be counted, and how much it then counts."""

from batchdp.queries.amounts import Amount, Choice, Constant, Scaled, Total, ValueOf
from batchdp.queries.conditions import All, Any, Condition, Cut, Missing, Negation, OneOf, Truth, Within
from batchdp.queries.query import Item, Query

__all__ = [
    "All",
    "Amount",
    "Any",
    "Choice",
    "Condition",
    "Constant",
    "Cut",
    "Item",
    "Missing",
    "Negation",
    "OneOf",
    "Query",
    "Scaled",
    "Total",
    "Truth",
    "ValueOf",
    "Within",
]
