"""Import it before torch and call `over()` once the optimizer is made: until then nothing is collected.

These imports are thousands of modules, of which nothing is garbage; looking for some takes a fifth of a
training's start.
"""

import gc

gc.disable()


def over():
    """Let garbage be collected, as in any training; what there is by now counts as old."""
    gc.freeze()
    gc.unfreeze()
    gc.enable()
