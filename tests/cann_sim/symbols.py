"""The symbols that torch_npu may ask for, read from the wheel, so that none is missing in silence.

`operators` writes a C file in which each aclnn symbol named in the wheel is an IFUNC: asked for, it is the op
of the table, or a function that fails with its name.  Without it torch_npu would take another way for an op
that is not found, and that way ends in garbage.  `others` does the same for what libtorch_npu.so is linked to
and the runtime has not.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

OURS = re.compile(r"(?:acl|rt|hal|Msprof|Hccl|mspti)[A-Z0-9a-z]\w+")
OPERATOR = re.compile(rb"(?<=\0)aclnn[A-Za-z0-9_]+(?=\0)")

_HEAD = """void* sim_find_op(const char*);
int sim_missing_op(const char*);
"""
_OPERATOR = """static int missing_{symbol}(void) {{ return sim_missing_op("{op}"); }}
static void* pick_{symbol}(void) {{
    void* found = sim_find_op("{symbol}");
    return found ? found : (void*)missing_{symbol};
}}
int {symbol}(void) __attribute__((ifunc("pick_{symbol}")));
"""
_OTHER_HEAD = "int sim_missing_call(const char*);\n"
_OTHER = 'int {symbol}(void) {{ return sim_missing_call("{symbol}"); }}\n'


def operators(torch_npu: Path) -> str:
    """Return C text with both symbols of each aclnn op that the wheel in the folder `torch_npu` names."""
    library = (torch_npu / "lib" / "libtorch_npu.so").read_bytes()
    found = {name.decode() for name in OPERATOR.findall(library)}
    ops = sorted(
        {name[: -len("GetWorkspaceSize")] if name.endswith("GetWorkspaceSize") else name for name in found}
    )
    lines = [_OPERATOR.format(symbol=symbol, op=op) for op in ops for symbol in (op, op + "GetWorkspaceSize")]
    return _HEAD + "".join(lines)


def others(torch_npu: Path, objects: Iterable[Path]) -> str:
    """Return C text for each symbol that the wheel is linked to and no file of `objects` defines."""
    wanted = _names("--dynamic", "--undefined-only", str(torch_npu / "lib" / "libtorch_npu.so"))
    defined = _names("--defined-only", *map(str, objects))
    missing = sorted(name for name in wanted - defined if OURS.fullmatch(name))
    return _OTHER_HEAD + "".join(_OTHER.format(symbol=name) for name in missing)


def _names(*arguments: str) -> set[str]:
    told = subprocess.run(["nm", "--format=posix", *arguments], capture_output=True, text=True, check=True)
    return {line.split()[0] for line in told.stdout.splitlines() if len(line.split()) > 1}
