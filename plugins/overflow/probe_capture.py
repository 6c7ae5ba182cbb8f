"""The tensors of a bad operator and the batch that led to it, saved to files: only when asked for.

The operators of three steps are watched; the one that is bad first in a step is known in the next one, where
its output, its inputs and what the outermost module was called with are copied to the host.  The copies wait
for the device, and a thread beside the training writes them.
"""

import os
import time

MOST_BYTES = 256 << 20
MOST_TENSORS = 64


def setup(api):
    """Offer the command."""
    capture = Capture(api)
    ops = api.watch.levels["ops"]
    ops.capture = capture
    api.command("capture", capture.start, capture.stop, hooks=(capture.lease,))
    api.sample(2, capture.serve, kind="captured")


class Capture:
    """The command: copy on the training thread, write on the shim's."""

    def __init__(self, api):
        self.api = api
        self.lease = api.at_step(lambda step: None)
        self.wanted = False
        self.folder = ""
        self._batch = None
        self._found = None
        self._room = 0
        self._asked = False
        self._ready = None

    def start(self, arguments, steps, seconds):
        """Watch the next steps for what to save."""
        ops = self.api.watch.levels["ops"]
        if ops.hook.armed or ops.hook.live:
            self.api.refuse("operators are being watched already: ask again when that is over")
        if self.api.torch is None:
            self.api.refuse("torch is not loaded")
        self.folder = str(arguments.get("folder") or "/tmp/ascend-tui-%d/evidence" % os.geteuid())
        if not os.path.isabs(self.folder):
            self.api.refuse("the folder has to be an absolute path, as the training sees it")
        self._found, self._batch, self._room = None, None, MOST_BYTES
        self.wanted = self._asked = True
        steps = min(steps, 3)
        self.lease.arm(steps, seconds)
        ops.arm("capture", steps, seconds)
        return {"folder": self.folder}

    def stop(self):
        """Let go of everything."""
        self.wanted = False
        self._batch = None
        self.api.watch.levels["ops"].hook.disarm()

    # On the training thread.

    def at_outermost(self, module, inputs):
        """Keep what the outermost module is called with, until the step ends."""
        if self.wanted:
            self._batch = inputs

    def at_suspect(self, entry, args, result):
        """Copy the output and the inputs of the operator that was bad first in the step before."""
        if self.wanted and self._found is None:
            tensors = {"output": self._copy(result), "inputs": self._copy(args)}
            self._found = dict(tensors, op=entry.op, path=self._path_of(entry), phase=entry.phase)

    def _path_of(self, entry):
        return "" if entry.module is None else self.api.module_path(entry.module)

    def at_end(self, step):
        """Copy the batch where something was found; the rest is the shim's thread's."""
        found, self._found = self._found, None
        batch, self._batch = self._batch, None
        if found is not None:
            found["batch"], found["step"] = self._copy(batch), step
            found["left_out"] = "more than %d MiB" % (MOST_BYTES >> 20) if self._room < 0 else ""
            self.wanted, self._ready = False, found

    def _copy(self, value, depth=0):
        torch = self.api.torch
        if isinstance(value, torch.Tensor):
            size = value.numel() * value.element_size()
            self._room -= size
            if self._room < 0:
                return "left out: %d bytes" % size
            with self.api.unseen():
                return value.detach().to("cpu", copy=True)
        if depth > 4:
            return "left out: nested"
        if isinstance(value, dict):
            return {str(key): self._copy(one, depth + 1) for key, one in list(value.items())[:MOST_TENSORS]}
        if isinstance(value, (list, tuple)):
            return [self._copy(one, depth + 1) for one in value[:MOST_TENSORS]]
        return value if value is None or isinstance(value, (bool, int, float, str)) else type(value).__name__

    # On the shim's thread.

    def serve(self):
        """Write what is ready; return the record that says where, or why not."""
        ready, self._ready = self._ready, None
        if ready is not None:
            self._asked = False
            return self._write(ready)
        hook = self.api.watch.levels["ops"].hook
        if self._asked and not (hook.armed or hook.live):
            self._asked = self.wanted = False
            return {"why": hook.refused or "nothing bad came again in the watched steps: nothing was saved"}
        return None

    def _write(self, found):
        stamp = time.strftime("%Y%m%d-%H%M%S")
        name = "%s-%d-step%d-%s.pt" % (stamp, os.getpid(), found["step"], found["op"].rpartition("::")[2])
        path = os.path.join(self.folder, name)
        try:
            os.makedirs(self.folder, mode=0o700, exist_ok=True)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                self.api.torch.save(found, file)
        except (OSError, RuntimeError) as error:
            return {"why": "%s could not be written: %s" % (path, error)}
        return {"path": path, "step": found["step"], "bytes": os.path.getsize(path), "why": found["left_out"]}
