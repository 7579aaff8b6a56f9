"""Pictures for people, drawn by matplotlib from plain figures; nothing here knows a strategy, a release or a ledger.

Each value's `plot` method imports its file when it is called, so matplotlib is loaded only by those who draw.
"""
