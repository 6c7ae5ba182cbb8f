"""The commands of `ascend-tui`, one file each; every function returns the exit code."""

OK = 0
FINDINGS = 1
USAGE = 2
REFUSED = 3
GONE = 4
