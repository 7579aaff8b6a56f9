"""Releases of component strategies: tables over many columns, counted from codes, kept as noisy components."""
