"""Tables in any engine: opened read-only, counted there in one pass."""
