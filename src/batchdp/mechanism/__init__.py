"""Noise, as far as it is decided without data: the lattice, the mechanism on it, its law, whose privacy it is."""
