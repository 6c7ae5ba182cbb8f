"""What to tell the user for each code an injection can fail with."""

from __future__ import annotations

from ascend_tui.target import Refusal, Target

_RUN = "start the training with `ascend-tui run -- CMD`"
_AGAIN = "Try again; if it stays so, " + _RUN
_INSTEAD = "Instead, " + _RUN

# code: (why, next step); {detail} is what the injector saw.
SENTENCES = {
    "busy": ("another injector is at work on it", "Wait a moment and try again"),
    "call_failed": (
        "it could not take the shim over ({detail}): out of threads, or its main thread runs no Python",
        _AGAIN,
    ),
    "call_stuck": (
        "the borrowed call did not return and was abandoned; the thread has its own state back",
        _AGAIN,
    ),
    "call_stuck_for_good": (
        "the borrowed call did not return and its thread could not be reached ({detail})",
        "Attach again: the next attempt starts with giving that thread back",
    ),
    "ending": (
        "its interpreter is shutting down, and cannot be called from outside any more",
        "Wait for its end; in an exit handler of Python's, `--method thread` may still get in",
    ),
    "gdb": ("gdb cannot bring the shim in: {detail}", "Attach without `--method gdb`, or " + _RUN),
    "gdb_left": (
        "gdb has ended and left it stopped ({detail})",
        "Look at State and TracerPid in /proc/{pid}/status; with TracerPid 0, `kill -CONT {pid}`",
    ),
    "gone": ("it has ended", "Look at its log or exit status"),
    "helper_failed": ("the injector itself failed ({detail}); the target is unharmed", _AGAIN),
    "helper_timeout": ("the injector did not finish within {detail} and was ended", _AGAIN),
    "memory": ("its memory could not be read or written ({detail})", _AGAIN),
    "no_address_range": ("it has no large free range of addresses left", _INSTEAD),
    "no_gadget": ("its C library has none of the instructions that are needed ({detail})", _INSTEAD),
    "no_memory": (
        "it may not map new memory (address space limit, seccomp, or SELinux execmem)",
        "Lift that limit, or " + _RUN,
    ),
    "no_symbols": ("its interpreter does not export the functions that are needed ({detail})", _INSTEAD),
    "no_usable_thread": (
        "no thread can be borrowed and given back exactly ({detail})",
        "Try again in a moment, or with `--method pending` or `--method thread`",
    ),
    "no_vector_state": ("this kernel does not show the thread's vector registers", _INSTEAD),
    "not_64bit": ("it runs 32-bit code", _INSTEAD),
    "not_elf": ("its interpreter's file cannot be understood ({detail})", _INSTEAD),
    "ptrace_refused": ("the kernel refused ({detail})", "Run as root, or " + _RUN),
    "remote_exec": ("`sys.remote_exec` cannot be used: {detail}", "Attach without `--method remote_exec`"),
    "shadow_stack": (
        "it runs with a hardware shadow stack, which a borrowed call would violate",
        _INSTEAD,
    ),
    "stopped": ("it is stopped (Ctrl-Z or SIGSTOP)", "Continue it with `kill -CONT {pid}`"),
    "unsupported_machine": ("this machine ({detail}) is neither x86_64 nor aarch64", _INSTEAD),
    "vector_state_too_large": ("its vector registers do not fit into a signal frame", _INSTEAD),
}
UNKNOWN = ("the injection failed ({detail})", _AGAIN)


def refusal_for(target: Target, code: str, detail: str) -> Refusal:
    """Return the refusal for an injector's error code and what it saw."""
    why, next_step = SENTENCES.get(code, UNKNOWN)
    values: dict[str, object] = {"pid": target.id.pid, "title": target.title}
    if code not in SENTENCES:
        values["detail"] = f"{code} {detail}".strip()
    elif "{detail}" in why:
        values["detail"] = detail or "?"
    what = "Cannot attach to process {pid} ({title})"
    return Refusal(code, what, why, next_step, tuple(values.items()))
