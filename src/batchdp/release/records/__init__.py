"""Records that nobody is, drawn such that their tables are close to the released ones. Nothing but a release is read.

`fitting` says which tables records can be compared with, `combined` where several releases are one; `tree` draws the
first ones, `exchange` improves them, `values` names what their codes stand for, and `records` puts all of it together.
"""
