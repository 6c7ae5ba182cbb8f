"""How the inside of the machine marks its results; imported on both sides."""

RESULT = "@@ "
END = "end"
