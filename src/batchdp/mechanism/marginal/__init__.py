"""Weighted tables on the lattice: whole numbers, their exact L1 sensitivity, one Laplace noise for all of them."""
