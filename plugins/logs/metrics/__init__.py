"""Numbers that a log prints again and again: which they are, and what they do."""
