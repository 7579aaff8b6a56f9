"""Shaped noise in a release: measurements as whole numbers with their bodies, the law of the noise, the mechanism."""
