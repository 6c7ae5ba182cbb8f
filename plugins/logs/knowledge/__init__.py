"""What lines mean: rules by theme, exceptions, error codes, and what only looks alarming."""
