"""Where a target trains."""

import gc

import torch


def device_of(name):
    """Return the device of this name; `import torch` has loaded torch_npu by itself where it is an npu."""
    device = torch.device(name)
    if device.type == "npu":
        # The simulated CANN compiles no operators; on a real 910A it would take minutes.
        torch.npu.set_compile_mode(jit_compile=False)
    return device


def say_end(*words):
    """Say how the training ended; and let the interpreter, which now has torch, end in half of its time."""
    print("end", *words, flush=True)
    gc.freeze()
