"""Consistent answers of a release, beside its own: agreeing, nowhere below 0, whole if asked."""
