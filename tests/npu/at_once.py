"""Run a script of torch and leave at once: an interpreter with torch_npu needs three seconds to end itself.

python at_once.py SCRIPT [arguments ...]
"""

from __future__ import annotations

import gc
import importlib
import os
import runpy
import sys
import traceback

if __name__ == "__main__":
    del sys.argv[0]
    sys.path[0] = os.path.dirname(sys.argv[0])
    # The script would import it with the collector on, which finds no garbage there in a fifth of the time.
    gc.disable()
    importlib.import_module("torch")
    gc.freeze()
    gc.unfreeze()
    gc.enable()
    code = 0
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    os._exit(code)
