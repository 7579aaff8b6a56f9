"""Denoised answers: post-processing that shrinks what is uncertain toward what the certain parts imply.

`cells` for a matrix of measurements, `margins` for single columns, `tables` for tables over many; `denoised` for
releases. Nothing but a release is looked at, and the strength is chosen by estimates of the risk from it alone.
"""
