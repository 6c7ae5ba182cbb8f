"""The proofs that an attach can be trusted: `python -m soak`, and its `.versions`, `.states` and `.ranks`."""
