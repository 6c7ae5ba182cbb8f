"""The shim and the text that carries it.

The other files of this folder run inside the training process; this one runs in the monitor and
joins them, with wire.py, into one Python text that needs no file, no package and no import beyond
the standard library on the other side.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

VERSION = "1"
"""Grows when the shim's behaviour changes; the protocol has its own number in wire.py."""
AREA = "@AREA@"
"""The injector replaces this by the addresses of the pages it mapped, or by None."""

_ORDER: Sequence[str] = (
    "wire",
    "shim.shell",
    "shim.process",
    "shim.history",
    "shim.governor",
    "shim.modes",
    "shim.recorder",
    "shim.reuse",
    "shim.devices",
    "shim.steps",
    "shim.scaler",
    "shim.modules",
    "shim.hook",
    "shim.taps",
    "shim.readback",
    "shim.hooks",
    "shim.pending",
    "shim.pages",
    "shim.api",
    "shim.probes",
    "shim.server",
    "shim.requests",
    "shim.agent",
)

# Compiling one file holds the interpreter for 1 to 5 ms; between two files the training gets its turn.
_BOOT = """
def boot(files, path, version, area):
    import os, sys, threading, types
    root = "_ascend_tui_shim"
    # The pages are given back when this thread has left them.
    area = area and area + (threading.get_native_id(),)

    def of(kind, initial):
        # Containers may share a /tmp: their ids are no names there. The first namespace has a fixed number.
        try:
            number = os.stat("/proc/self/ns/" + kind).st_ino
        except OSError:
            return ""
        return "" if number == initial else "-%d" % number

    if not path:
        names = (os.geteuid(), of("user", 4026531837), os.getpid(), of("pid", 4026531836))
        path = "/tmp/ascend-tui-%d%s/%d%s.sock" % names

    def module(name, is_package):
        full = root + name
        if full in sys.modules:
            return None
        made = types.ModuleType(full)
        made.__package__ = full if is_package else full.rpartition(".")[0]
        if is_package:
            made.__path__ = []
        sys.modules[full] = made
        parent, _, last = full.rpartition(".")
        if parent:
            setattr(sys.modules[parent], last, made)
        return made

    def run():
        try:
            # Two boots that were asked for at the same time come one after the other; setdefault is atomic.
            gate = sys.modules.setdefault(root + ".boot", types.ModuleType(root + ".boot"))
            with gate.__dict__.setdefault("lock", threading.Lock()):
                start()
        except Exception as error:
            report(error)

    def start():
        before = set(sys.modules)
        shell = sys.modules.get(root + ".shim.shell")
        if shell is None or shell.agent is None or not shell.agent.is_alive():
            for name in list(sys.modules):
                if name.startswith(root) and name not in (root + ".shim.shell", root + ".boot"):
                    del sys.modules[name]
            module("", True)
            module(".shim", True)
            for name, source in files:
                made = module("." + name, False)
                if made is None:
                    setattr(sys.modules[root + ".shim"], "shell", shell)
                    continue
                code = compile(source, "<ascend-tui-shim %s>" % name, "exec", dont_inherit=True)
                exec(code, made.__dict__)
        sys.modules[root + ".shim.agent"].begin(path, version, area)
        sys.modules[root + ".shim.shell"].note_imports(before)

    def report(error):
        try:
            os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
            # Never through a link that somebody else has laid there, and never as text: an interpreter
            # that is ending has no more codecs, and what escapes from here is printed.
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
            file = os.open(path + ".error", flags, 0o600)
            try:
                os.write(file, repr(error).encode())
            finally:
                os.close(file)
        except Exception:
            return

    try:
        threading.Thread(target=run, name="ascend-tui-boot", daemon=True).start()
    except Exception as error:
        report(error)
"""

_OUTER = """
try:
    exec(compile({boot!r}, "<ascend-tui-boot>", "exec", dont_inherit=True), _space)
    _space.pop("boot")({files!r}, {path!r}, {version!r}, {area})
except KeyboardInterrupt:
    # A Ctrl-C that arrives in here belongs to the training.
    __import__("_thread").interrupt_main()
except Exception:
    _space.clear()
"""

# Whatever gets out of the text is printed into the training's log. In an interpreter that is ending not even
# the name of an exception may be there any more: so the outermost guard needs none.
_OUTERMOST = """try:
    exec(compile({outer!r}, '<ascend-tui-boot>', 'exec', dont_inherit=True), {{'_space': {{}}}})
except:
    try:
        if __import__('sys').exc_info()[0].__name__ == 'KeyboardInterrupt':
            __import__('_thread').interrupt_main()
    except:
        None
"""


def sources() -> list[tuple[str, str]]:
    """Return the (module name, text) pairs that travel, in the order they are run."""
    root = Path(__file__).parent.parent
    return [(name, root.joinpath(*name.split(".")).with_suffix(".py").read_text("utf-8")) for name in _ORDER]


def payload(socket_path: str = "") -> str:
    """Return the text to inject.

    The shim listens where every monitor looks, below the /tmp of the process that runs the text, unless
    `socket_path` says otherwise.  The text leaves no name in the target's `__main__` and prints nothing.
    A boot that fails writes the reason beside the socket, in a file that ends in `.error`.
    """
    outer = _OUTER.format(boot=_BOOT, files=sources(), path=socket_path, version=VERSION, area=AREA)
    return _OUTERMOST.format(outer=outer)
