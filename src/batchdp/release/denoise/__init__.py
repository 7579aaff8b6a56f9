"""Denoised answers: post-processing that shrinks what is uncertain toward what the certain parts imply.

`smooth` for a matrix of measurements and for single columns, `tables` for tables over many; `denoised` for
releases. Nothing but a release is looked at, and the strength is chosen by estimates of the risk from it alone.
"""
