"""Judges of the paper's claims: each takes the findings alone and returns a verdict with the figures behind it.

What is not there is "not measured", and so is a claim about a size that the run does not reach. Where the paper speaks
of LRM, the better of the two algorithms for its program counts: a claim shall not fail for our solver.
"""
