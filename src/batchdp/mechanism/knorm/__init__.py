"""Noise in the shape of a batch: the body that its columns span, and an exact sampler for it in `drawing`."""
