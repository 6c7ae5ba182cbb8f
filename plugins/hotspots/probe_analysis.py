"""What torch_npu.profiler recorded is worked off by its own analysis, in a process of its own.

In the training the library would fork it, fix how processes are started there, and register an exit function.
Here it is started as a new program, without a fork, and yields to all others.
"""

import os
import signal
import sys
import time
from typing import Any

NOT_FOR_CHILDREN = ("ASCEND_TUI", "PROF_CONFIG_PATH", "MSMONITOR_USE_DAEMON", "KINETO_USE_DAEMON")
"""What would put a shim, or another profiler, into the analysis too."""
MOST_FILES = 64
LOG_TAIL = 8192
LONGEST_S = 900.0

ANALYSIS = """
import os, signal, sys
signal.signal(signal.SIGALRM, lambda *_: os.killpg(0, signal.SIGKILL))
signal.alarm(int(sys.argv[3]))
os.nice(19)
for one in os.listdir("/proc/self/fd"):
    if int(one) > 2:
        try:
            os.close(int(one))
        except OSError:
            continue
sys.path[:] = [one for one in sys.path if one] + [sys.argv[2]]
os.chdir(sys.argv[1])
from torch_npu.profiler.profiler import analyse
analyse(sys.argv[1])
"""


def setup(api):
    """Leave the class for the files that come after."""
    api.analysis = Analysis


class Analysis:
    """The library's own analysis of what it recorded, in a process of its own that yields to all others."""

    def __init__(self, told):
        self._told = told
        self._folder = told["folder"]
        self._log = os.path.join(self._folder, "analysis.log")
        self._pid = 0
        self._began_mono = 0.0

    def begin(self):
        """Start it and return the record of what there is; the record of what failed where it cannot be."""
        library = os.path.dirname(os.path.dirname(str(sys.modules["torch_npu"].__file__)))
        words = (sys.executable, "-c", ANALYSIS, self._folder, library, str(int(LONGEST_S)))
        environment = {name: one for name, one in os.environ.items() if name not in NOT_FOR_CHILDREN}
        began = time.perf_counter_ns()
        try:
            # No fork: no tables of pages are copied and no handlers of a fork run.
            self._pid = os.posix_spawn(
                sys.executable,
                words,
                environment,
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_OPEN, 1, self._log, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600),
                    (os.POSIX_SPAWN_DUP2, 1, 2),
                ],
                setpgroup=0,
                setsigmask=(),
                setsigdef=(signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGPIPE, signal.SIGALRM),
            )
        except (OSError, ValueError) as error:
            why = "the analysis could not be started (%s); by hand: " % (error,)
            return dict(self._told, state="failed", why=why + self._by_hand())
        self._told["spawn_us"] = round((time.perf_counter_ns() - began) / 1e3, 1)
        self._began_mono = time.monotonic()
        return dict(self._told)

    def look(self):
        """Return the record of what it gave, None while it runs."""
        took_s = time.monotonic() - self._began_mono
        used: Any = None
        try:
            pid, status, used = os.wait4(self._pid, os.WNOHANG)
        except ChildProcessError:
            # The training waits for all its children, or ignores their end.
            pid, status, used = (
                (self._pid, 0, None) if not os.path.exists("/proc/%d" % self._pid) else (0, 0, None)
            )
        if not pid:
            if took_s < LONGEST_S:
                return None
            self.kill()
            return self._done(took_s, None, "the analysis took longer than %d s" % LONGEST_S)
        self._pid = 0
        return self._done(took_s, used, "the analysis ended with status %d" % status if status else "")

    def _done(self, took_s, used, why):
        output = os.path.join(self._folder, "ASCEND_PROFILER_OUTPUT")
        try:
            files = sorted(one for one in os.listdir(output) if not one.endswith(".done"))
        except OSError:
            files = []
        if not why and not files:
            why = "the analysis wrote nothing"
        told = dict(self._told, files=files[:MOST_FILES], analysis_s=round(took_s, 2))
        if used is not None:
            told["cpu_s"] = round(used.ru_utime + used.ru_stime, 2)
            told["rss_bytes"] = used.ru_maxrss * 1024
        said = self._errors()
        if why:
            why = "%s; by hand: %s" % (why, self._by_hand())
        return dict(told, state="failed" if why else "analysed", why=why or said, said=said)

    def _errors(self):
        """Return what the library wrote of its errors."""
        try:
            with open(self._log, encoding="utf-8", errors="replace") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - LOG_TAIL))
                lines = file.read().splitlines()
        except OSError:
            return ""
        found = [line.rpartition("profiler.py: ")[2] for line in lines if "[ERROR]" in line]
        return "; ".join(found or [line for line in lines[-1:] if "Error" in line])[:400]

    def _by_hand(self):
        return 'python -c "from torch_npu.profiler.profiler import analyse; analyse(%r)"' % self._folder

    def kill(self):
        """End it and all that it started."""
        pid, self._pid = self._pid, 0
        if not pid:
            return
        try:
            # Not waited for, its number is not another's yet.
            if os.waitpid(pid, os.WNOHANG)[0]:
                return
            os.killpg(pid, signal.SIGKILL)
            for _ in range(100):
                # The group: in a container its own children may have become the training's.
                if not os.waitpid(-pid, os.WNOHANG)[0]:
                    time.sleep(0.01)
        except OSError:
            # No such child, or no more of them.
            return
