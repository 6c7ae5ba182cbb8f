"""From a pid to bytes: which files hold what a process writes, and how they are read while they grow."""
