"""Where a target trains, how fast, and how it ends."""

import gc
import os
import time

import torch


def device_of(name):
    """Return the device of this name; `import torch` has loaded torch_npu by itself where it is an npu."""
    device = torch.device(name)
    if device.type == "npu":
        # The simulated CANN compiles no operators; on a real 910A it would take minutes.
        torch.npu.set_compile_mode(jit_compile=False)
    return device


def pause(seconds):
    """Sleep between two steps, until a test that is done with this training makes the file HURRY."""
    if seconds and not os.path.exists(os.environ.get("HURRY", "")):
        time.sleep(seconds)


def say_end(*words):
    """Say how the training ended; and let the interpreter, which now has torch, end in half of its time."""
    print("end", *words, flush=True)
    gc.freeze()
