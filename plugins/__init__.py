"""The plugins of the tree; they use the same entry points and contract as anybody else's."""
