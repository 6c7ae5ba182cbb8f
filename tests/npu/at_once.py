"""Run a script and leave at once: an interpreter that has torch_npu takes three seconds to take itself apart.

python at_once.py SCRIPT [arguments ...]
"""

from __future__ import annotations

import os
import runpy
import sys
import traceback

if __name__ == "__main__":
    del sys.argv[0]
    sys.path[0] = os.path.dirname(sys.argv[0])
    code = 0
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    os._exit(code)
