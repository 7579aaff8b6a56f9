"""From queries to cells: the atoms that they tell apart, and the classes of records that they treat alike."""
