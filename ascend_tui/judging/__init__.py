"""Judgements that more than one plugin passes: plugins know nothing of each other, and one truth is enough.

The loss and its scale are watched live by one plugin and read from a log by another; so is memory that ran
out.  Pure: numbers and text in, findings out.
"""
