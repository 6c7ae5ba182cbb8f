"""The training of `ascend-tui demo`; it knows nothing of the monitor."""
