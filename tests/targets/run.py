"""Run a training script, and inside the same process the text in a file: what an injector would do.

    python run.py --boot TEXT_FILE [--after SECONDS] SCRIPT [arguments of the script ...]

Without --after the text runs before the script has imported anything.
"""

import argparse
import runpy
import sys
import threading

parser = argparse.ArgumentParser()
parser.add_argument("--boot", required=True)
parser.add_argument("--after", type=float, default=0.0)
parser.add_argument("script")
parser.add_argument("arguments", nargs=argparse.REMAINDER)
asked = parser.parse_args()


def boot():
    """Run the text once, in a namespace of its own."""
    with open(asked.boot) as file:
        exec(compile(file.read(), asked.boot, "exec"), {})


if asked.after:
    timer = threading.Timer(asked.after, boot)
    timer.daemon = True
    timer.start()
else:
    boot()
sys.argv = [asked.script, *asked.arguments]
runpy.run_path(asked.script, run_name="__main__")
