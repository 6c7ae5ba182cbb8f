"""The pieces of the pane: lists, stories, and the words of both."""
