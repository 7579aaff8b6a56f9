"""Linear queries as values: what a record must fulfil to be counted, and how much it then counts."""
