"""Can this process be attached to, and if not, what would have to be otherwise?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ascend_tui.attach import has_shim, target_of, why_not
from ascend_tui.commands.doctor.check import START_WITH_US, Check
from ascend_tui.commands.doctor.lodging import lodging
from ascend_tui.commands.doctor.rights import rights_over
from ascend_tui.target import RefusedError, Target

# What `attach` says of them is all there is to say.
NO_TARGET = ("own_process", "kernel_thread", "zombie", "gone", "not_python")


def process(pid: int) -> Iterator[Check]:
    """Say what the process is, what an attach would be refused for, and what that comes from."""
    try:
        target = target_of(pid)
    except RefusedError as error:
        yield Check("process", "error", error.refusal.english())
        return
    yield Check(
        "process", "ok", f"{pid} {target.title}, Python {target.python or 'unknown'}, user {target.uid}"
    )
    refusal = why_not(target)
    is_there = has_shim(target)
    if is_there:
        yield Check("attach", "ok", "a shim is in it already")
    elif refusal is None:
        yield Check("attach", "ok", "nothing stands in the way")
    else:
        yield Check("attach", "error", refusal.english())
        if refusal.code in NO_TARGET:
            return
    yield from rights_over(target, "" if refusal is None or is_there else refusal.code)
    yield from lodging(target)
    yield _from_the_start(target)


def _from_the_start(target: Target) -> Check:
    """Say whether the same program would get a shim when it is started with one."""
    options = python_options(target.argv)
    if "S" in options:
        found = "it runs with -S: Python loads nothing of ours when it starts"
        return Check("start", "warning", found, f"leave out the -S, and {START_WITH_US}")
    ignoring = next((one for one in "IE" if one in options), "")
    if ignoring:
        found = f"it runs with -{ignoring}: Python does not look where `ascend-tui run` puts the shim"
        return Check("start", "warning", found, f"leave out the -{ignoring}, and {START_WITH_US}")
    return Check("start", "ok", "`ascend-tui run -- CMD` gives it a shim from the start, without ptrace")


def python_options(words: Sequence[str]) -> set[str]:
    """Return the one-letter options of an interpreter's command line, up to the program."""
    found: set[str] = set()
    rest = iter(words[1:])
    for word in rest:
        if word == "--check-hash-based-pycs":
            next(rest, None)
        if word == "-" or not word.startswith("-"):
            break
        if word.startswith("--"):
            continue
        for at, letter in enumerate(word[1:], 2):
            found.add(letter)
            if letter in "cm":
                return found
            if letter in "WX":
                if at == len(word):
                    next(rest, None)
                break
    return found
