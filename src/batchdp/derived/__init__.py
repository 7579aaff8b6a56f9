"""Answers computed from private answers, which costs no privacy: ratios, sums of ratios, quantiles, their intervals."""
