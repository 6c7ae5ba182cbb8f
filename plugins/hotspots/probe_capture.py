"""One step recorded by torch_npu.profiler, on request: the kernels where msPTI is not in the process.

The profiler is the training's own library and nothing of it is imported here.  It begins at one boundary and
ends at the next one, on the training thread.  What it wrote is worked off in a process of its own: in the
training the library would fork it, and import and register what stays.
"""

import os
import re
import sys
import time
from typing import Any

PACKAGE = "torch_npu.profiler"
INTERFACE, CREATOR = PACKAGE + ".profiler_interface", PACKAGE + "._profiler_path_creator"
TAKEN = ("PROFILING_MODE", "PROFILER_SAMPLECONFIG")
"""Set for msprof: torch_npu.profiler does nothing then."""
PATIENCE, LEAST_PATIENCE_S = 5.0, 10.0
"""A step that takes many times as long as the last ones is cut: the record grows with each operator."""
ROOM = 256 << 20
NAMES = re.compile(r"[\w./~ -]+")
"""The library warns, in the training's output, of paths with anything else."""
OURS = ("torch", "torch_npu", "os", "shutil", "posixpath", "genericpath", "json", "warnings")
"""Where a fault of the library comes from; one from elsewhere may be a signal handler's."""


def setup(api):
    """Offer the command."""
    api.capture = Capture(api)


class Capture:
    """The command, the profiler of one step, and what became of it."""

    def __init__(self, api):
        self.api = api
        self.hook = api.at_step(self.begin, self.end)
        self.folder = ""
        self._asked = False
        self._until_mono = 0.0
        self._profile: Any = None
        self._told: dict[str, Any] = {}
        self._ready: Any = None
        self._analysis: Any = None
        self._began_ns = 0
        self._path_before: Any = None
        api.command("capture", self.start, self.stop, hooks=(self.hook,))
        api.sample(2.0, self.serve, kind="captured")
        api.on_close(self.close)

    # The command (shim thread).

    def start(self, arguments, steps, seconds):
        """Have the next step recorded into `folder`."""
        refuse = self.api.refuse
        if self._asked or self._ready is not None or self._analysis is not None:
            refuse("the last capture is not done yet: ask again when its record has come")
        why = self._why_never() or self._why_not_now()
        if why:
            refuse(why)
        folder = str(arguments.get("folder") or "/tmp/ascend-tui-%d/profiles" % os.geteuid())
        if not os.path.isabs(folder):
            refuse("the folder has to be an absolute path, as the training sees it")
        self.folder = os.path.realpath(folder)
        why = _cannot_write(self.folder)
        if why:
            refuse("%s: name another one with folder=" % why)
        self._asked, self._told = True, {}
        self._until_mono = time.monotonic() + seconds
        self.hook.arm(1, seconds)
        return {"folder": self.folder}

    def _why_never(self):
        kind = getattr(self.api.device, "kind", "")
        if self.api.torch is None or kind != "npu":
            return "the training does not use an NPU: hotspots.profile records the operators of a step"
        found = [name for name in TAKEN if os.environ.get(name)]
        if found:
            return (
                "%s is set for msprof, and torch_npu.profiler does nothing then: capture with msprof"
                % found[0]
            )
        profiler = sys.modules.get(PACKAGE)
        if not hasattr(profiler, "profile") or not hasattr(profiler, "tensorboard_trace_handler"):
            return "torch_npu.profiler is not loaded in the training, and is not imported from outside"
        return ""

    def _why_not_now(self):
        if self.api.recorder.is_on or self.api.kernels.is_on:
            return "a step is being recorded just now: ask again in a few seconds"
        core = self.api.torch._C._autograd
        event: Any = getattr(getattr(sys.modules.get("torch_npu"), "npu", None), "Event", None)
        is_wrapped = hasattr(getattr(event, "record", None), "origin_func")
        if core._profiler_enabled() or is_wrapped or getattr(_creator(), "is_prof_inited", False):
            return "the training's own profiler is on: ask again when it is done"
        return ""

    def stop(self):
        """End what runs at the first chance; the analysis goes on."""
        if self._profile is not None:
            self.api.recorder.expire()

    def close(self):
        """End the analysis; the shim has what records ended on the training thread."""
        self._asked, self._ready = False, None
        analysis, self._analysis = self._analysis, None
        if analysis is not None:
            analysis.kill()

    # On the training thread.

    def begin(self, step):
        """Begin to record, or a step later where a sample is being taken."""
        began = time.perf_counter_ns()
        if self.api.recorder.is_on or self.api.kernels.is_on:
            self.hook.arm(1, max(self._until_mono - time.monotonic(), 0.1))
            return
        why = self._why_not_now()
        if why:
            self.hook.refuse(why)
            return
        creator = _creator()
        # Whoever has named a folder for a profiler that begins later finds it as it was.
        before = dict(vars(creator)) if creator is not None else {}
        kind = sys.modules[PACKAGE].profile
        profile = kind.__new__(kind)
        try:
            profile.__init__(**self._options())
            _plainly(profile, "start")
        except BaseException as error:
            # Or it would be ended where it is let go of, and print that.
            profile.stopped = True
            _undo()
            _restore(creator, before)
            if not _is_the_librarys(error):
                raise
            self.hook.refuse("torch_npu.profiler does not begin: %s" % str(error)[:300])
            return
        path = str(getattr(getattr(profile, "prof_if", None), "prof_path", "") or "")
        # That it is on stays: its end asks for it.
        _restore(creator, before, but="is_prof_inited")
        self._profile, self._path_before = profile, before.get("_prof_path")
        self._told = {"step": step + 1, "folder": path, "state": "recorded", "why": ""}
        patience_s = max((self.api.step_s or 0.0) * PATIENCE, LEAST_PATIENCE_S)
        self.api.recorder.hold(self._cut, patience_s)
        self._began_ns = time.perf_counter_ns()
        self._told["pause_us"] = (self._began_ns - began) / 1e3

    def _options(self):
        library = sys.modules[PACKAGE]
        action, kinds = library.ProfilerAction, library.ProfilerActivity
        more = {}
        config: Any = getattr(library, "_ExperimentalConfig", None)
        level: Any = getattr(library, "ProfilerLevel", None)
        metrics: Any = getattr(library, "AiCMetrics", None)
        if config is not None and hasattr(level, "Level1") and hasattr(metrics, "PipeUtilization"):
            more["experimental_config"] = config(
                profiler_level=level.Level1, aic_metrics=metrics.PipeUtilization
            )
        return dict(
            more,
            activities=[kinds.CPU, kinds.NPU],
            # A Schedule without a warmup would print a warning; so would none at the end.
            schedule=lambda step: action.NONE if step else action.RECORD_AND_SAVE,
            on_trace_ready=library.tensorboard_trace_handler(self.folder, analyse_flag=False),
            record_shapes=True,
        )

    def end(self, step):
        """End the record of a whole step."""
        self._finish("")

    def _cut(self):
        self._finish("the step did not end in time, or another profiler began: it is not whole")

    def _finish(self, why):
        profile, self._profile = self._profile, None
        if profile is None:
            return
        began = time.perf_counter_ns()
        self.api.recorder.release()
        creator = _creator()
        another = creator is not None and creator._prof_path != self._path_before
        try:
            _plainly(profile, "step")
            _plainly(profile, "stop")
        except BaseException as error:
            _undo()
            if not _is_the_librarys(error):
                raise
            why = "torch_npu.profiler does not end: %s" % str(error)[:300]
        finally:
            profile.stopped = True
            if creator is not None:
                # One that begins just now has set it for itself already.
                creator.is_prof_inited = another
            told = self._told
            told["step_us"] = round((began - self._began_ns) / 1e3, 1)
            told["pause_us"] = round(told["pause_us"] + (time.perf_counter_ns() - began) / 1e3, 1)
            told["why"] = why
            self._ready = told

    # On the shim's thread.

    def serve(self):
        """Tell of a capture: that it was recorded, what its analysis gave, or why there is none."""
        ready, self._ready = self._ready, None
        if ready is not None:
            self._asked = False
            if ready["why"]:
                return dict(ready, state="failed")
            self._analysis = self.api.analysis(ready)
            return self._analysis.begin()
        if self._analysis is not None:
            told = self._analysis.look()
            if told is not None:
                self._analysis = None
            return told
        hook = self.hook
        if self._asked and not self._told and not hook.armed:
            self._asked = False
            return {"state": "failed", "why": hook.refused or "no step began in time: nothing was recorded"}
        return None


def _creator():
    """Return where the library keeps the folder of the next profiler, or None."""
    make = getattr(sys.modules.get(CREATOR), "ProfPathCreator", None)
    return make() if make is not None else None


def _restore(creator, fields, but=""):
    if creator is not None:
        vars(creator).update({name: one for name, one in fields.items() if name != but})


def _plainly(profile, name):
    """Call a method without what prints its exceptions into the training's output."""
    method = getattr(type(profile), name)
    getattr(method, "__wrapped__", method)(profile)


def _undo():
    """Take out what a beginning or an end that failed halfway may have left."""
    interface = sys.modules.get(INTERFACE)
    names = ["_finalize_profiler", "_disable_event_record"]
    if sys.modules["torch"]._C._autograd._profiler_enabled():
        names.insert(0, "_stop_profiler")
    for name in names:
        call = getattr(interface, name, None)
        try:
            if call is not None:
                call()
        except RuntimeError:
            # It had not got that far.
            continue


def _is_the_librarys(error):
    """Tell whether an exception comes from the library, or from what it called."""
    if not isinstance(error, Exception):
        return False
    trace, name = error.__traceback__, ""
    while trace is not None:
        name = str(trace.tb_frame.f_globals.get("__name__", ""))
        trace = trace.tb_next
    known = (*OURS, __name__.partition(".")[0])
    return name.partition(".")[0] in known and not name.startswith("torch.distributed.elastic")


def _cannot_write(folder):
    """Return why nothing can be written there, or an empty text."""
    if not NAMES.fullmatch(folder):
        return "torch_npu.profiler takes only letters, digits and . _ - ~ in a path"
    name = os.path.join(folder, ".%d-%d" % (os.getpid(), time.monotonic_ns()))
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        os.unlink(name)
        room = os.statvfs(folder)
    except OSError as error:
        return "%s cannot be written: %s" % (folder, error.strerror or error)
    if room.f_bavail * room.f_frsize < ROOM:
        return "%s has less than %d MiB left" % (folder, ROOM >> 20)
    return ""
