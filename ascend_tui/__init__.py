"""ascend-tui: a terminal monitor for PyTorch trainings that are already running."""

__version__ = "0.1.0"
