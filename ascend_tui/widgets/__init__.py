"""The parts of the screen; none of them knows a plugin."""
