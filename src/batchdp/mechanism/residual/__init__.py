"""Component strategies on the lattice: integer measurements by axes, their exact sensitivity, noise of their own."""
