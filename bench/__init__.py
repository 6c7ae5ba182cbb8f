"""Benchmarks: `python -m bench` prints tables with the peers beside, all measured in one run."""
