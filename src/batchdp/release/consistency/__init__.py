"""Answers that agree and are nowhere below 0: post-processing, which looks at noisy answers alone and costs nothing.

`tables` for batches of whole tables over many columns, by their components; `cells` for a matrix of measurements;
`rounding` for whole numbers. Nothing here knows a release, a ledger or a record.
"""
