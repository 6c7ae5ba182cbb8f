"""What compilers say: of operators, kernels and graphs, for the device or for the host.

"ub overflow" is a buffer of the chip that a kernel does not fit into, at compile time; no number overflowed.
"""

from __future__ import annotations

import re

from ascend_tui.plugin import Message
from ascend_tui.text import byte_size

from ..sighting import CONTEXT, GENERIC, REASON, Found, Line, Sighting
from .rule_table import Row, custom, key_of, masked, near, row

_BUFFERS = {
    "ub": "Unified Buffer (UB)",
    "unified buffer": "Unified Buffer (UB)",
    "l1": "L1 buffer",
    "cbuf": "L1 buffer (cbuf)",
    "l0a": "L0A buffer",
    "l0b": "L0B buffer",
    "l0c": "L0C buffer",
    "cc": "L0C buffer (cc)",
    "bt": "bias table buffer (BT)",
    "fb": "fixpipe buffer (FB)",
    "ssbuf": "scalar buffer (ssbuf)",
}
_OVERFLOW = re.compile(
    r"\b(?P<buffer>ub|unified buffer|l1|l0[abc]|cbuf|cc|bt|fb|ssbuf)\s+overflow\b"
    r"(?:,?\s*requires\s+(?P<needed>\d{1,15})\s+(?P<unit>bits"
    r"|bytes)\s+while\s+(?P<there>\d{1,15})\s+(?:bits|bytes)\s+ava\w{2,8})?",
    re.IGNORECASE,
)
_TOO_LARGE = Message("compile time: a kernel needs {needed} of {buffer}, the chip has {there}")
_TOO_LARGE_PLAIN = Message("compile time: a kernel does not fit into {buffer}")
_TOO_LARGE_WHY = Message("the compiler ran out of a buffer of the chip: no number overflowed")
_SMALLER = Message("make the kernel's blocks smaller (BLOCK_SIZE, tiling), or switch multi-buffering off")
_PIPELINE_PLAIN = Message("the BiSheng compiler could not build a kernel")
_MLIR = Message("compiling a kernel failed: {what}")
_TRITON = Message("Triton could not compile a kernel: {what}")
_RESOURCES = Message("a Triton kernel needs {needed} of {resource}, the chip has {there}")
_GRID = Message("the grid of a Triton kernel is too large: coreDim is {blocks}, at most {most} is possible")
_GRID_DO = Message(
    "let each program do more (a larger block, or a loop over blocks), so that fewer are started"
)
_COMPILER = Message("a compiler error: {what}")
_EXTENSION = Message("an extension in C++ could not be built")
_EXTENSION_DO = Message("look at the first compiler error above: the others mostly follow from it")
_OPERATOR = Message("operator {operator} could not be compiled")
_OPERATOR_PLAIN = Message("an operator could not be compiled")
_OPERATOR_DO = Message(
    "look for the first error of TBE or the compiler in plog: this line only says that it failed"
)
_NO_BINARY = Message("no compiled kernel of operator {operator} is installed for this chip and these types")
_NO_BINARY_DO = Message(
    "install the operator package (kernels) of this chip in CANN's version, and look whether the operator "
    "takes these types"
)
_NO_OPP = Message("the operator packages of CANN are not found: {what}")
_NO_OPP_DO = Message("install the operator package of this chip, and source CANN's set_env.sh in this shell")
_OPTION = Message("an option of the operator compiler could not be set: CANN's compiler did not start")
_OPTION_DO = Message(
    "see whether set_env.sh is sourced and the Python packages that CANN needs are installed (numpy, "
    "decorator, sympy …)"
)
_ATC = Message("ATC could not convert the model: look for its reason beside this line")
_GRAPH = Message("GE could not build a graph: look for its reason beside this line")
_SOC = Message("the chip name is not known to this CANN: {what}")
_SOC_DO = Message("npu-smi info names the chip; CANN must be new enough to know it")
_BACKEND = Message("torch.compile: backend {backend} failed")
_DYNAMO = Message("torch.compile cannot trace this code: {what}")
_INDUCTOR = Message("torch.compile could not build a kernel: {what}")
_EAGER = Message(
    "run without torch.compile once: if that works, exclude the part with torch.compiler.disable"
)
_RECOMPILES_DO = Message(
    "a size that changes each time is the usual reason: mark it dynamic, or pad to few sizes"
)
_CONVERT = Message("torch.compile leaves {function} as it is: {what}")


def _buffer(line: Line) -> Found:
    found = _OVERFLOW.search(near(line.text, (" overflow", " Overflow")))
    if found is None:
        return None
    name = found["buffer"].lower()
    buffer = _BUFFERS[name]
    headline = Message.of(_TOO_LARGE_PLAIN.text, buffer=buffer)
    facts: tuple[tuple[str, str | int], ...] = (("buffer", buffer),)
    if found["needed"] is not None:
        unit = 8 if found["unit"].lower() == "bits" else 1
        needed, there = int(found["needed"]) // unit, int(found["there"]) // unit
        headline = Message.of(
            _TOO_LARGE.text, needed=byte_size(needed), there=byte_size(there), buffer=buffer
        )
        facts = (*facts, ("needed_bytes", needed), ("available_bytes", there))
    elif not re.search(r"error|compil|mlir|bisheng|kernel|tiling", line.text[:4_000], re.IGNORECASE):
        return None
    return Sighting(
        category="compile",
        severity="error",
        headline=headline,
        knows=REASON,
        key=f"buffer {name}",
        reason=_TOO_LARGE_WHY,
        advice=(_SMALLER,),
        facts=facts,
    )


_LOCATED = re.compile(
    r"(?:loc\(\"[^\"]{0,300}\"(?::\d{1,7}:\d{1,7})?\)"
    r"|[\w./*-]{1,200}\.mlir(?:\.\w{1,20})?:\d{1,7}:\d{1,7}): error: (?P<what>.{1,300})"
)


def _mlir(line: Line) -> Found:
    found = _LOCATED.search(near(line.text, (": error: ",)))
    if found is None:
        return None
    what = found["what"].strip()
    if "hir pipeline" in what.lower():
        return Sighting("compile", "error", _PIPELINE_PLAIN, GENERIC, "bisheng")
    return Sighting(
        category="compile",
        severity="error",
        headline=Message.of(_MLIR.text, what=masked(what)),
        key=f"mlir {key_of(what)}",
    )


RULES: tuple[Row, ...] = (
    custom(
        (
            " overflow, requires",
            "ub overflow",
            "UB overflow",
            "uffer overflow",
            "cbuf overflow",
            "cc overflow",
            " l1 overflow",
            " L1 overflow",
            " l0c overflow",
            " L0C overflow",
        ),
        _buffer,
    ),
    custom((": error: ",), _mlir),
    row(
        ("HIR pipeline", "bishengir-compile", "bisheng"),
        r"Failed to run Bi[Ss]hengHIR pipeline|bishengir-compile.{0,200}(?:failed|non-zero)"
        r"|\bbisheng\b.{0,80}(?:failed|error:)",
        _PIPELINE_PLAIN,
        "compile",
        "error",
        GENERIC,
        "bisheng",
    ),
    row(
        ("MLIRCompilationError", "encounters error:"),
        r"(?P<what>MLIRCompilationError|\[\w{3,60}\] encounters error)",
        _TRITON,
        "compile",
        "error",
        GENERIC,
        "triton mlir",
    ),
    row(
        ("coreDim=",),
        r"coreDim=(?P<blocks>\d{1,15}) can't be greater than (?P<most>\w{1,20})",
        _GRID,
        "usage",
        "error",
        REASON,
        "grid",
        advice=(_GRID_DO,),
    ),
    row(
        ("out of resource: ",),
        r"out of resource: (?P<resource>[\w ]{1,40}), Required: (?P<needed>\d{1,15}), Hardware limit: "
        r"(?P<there>\d{1,15})",
        _RESOURCES,
        "compile",
        "error",
        REASON,
        "triton resources",
        advice=(_SMALLER,),
    ),
    row(
        ("compiler.errors.", "CompilationError"),
        r"(?:triton\.compiler\.errors\.\w{1,40}|\bCompilationError): ?(?P<what>.{0,200})",
        _TRITON,
        "compile",
        key="triton",
    ),
    row(
        ("Error building extension", "ninja: build stopped", "subcommand failed", "error: command "),
        r"Error building extension|ninja: build stopped|error: command '[^']{1,200}' failed",
        _EXTENSION,
        "compile",
        "error",
        GENERIC,
        "extension",
        advice=(_EXTENSION_DO,),
    ),
    row(
        (" error: ",),
        r"(?P<what>[\w.+-]{1,80}\.(?:cpp|cc|cxx|c|cce|h|hpp|cu|asc"
        r"|cuh):\d{1,7}(?::\d{1,7})?: (?:fatal )?error: .{1,200}"
        r"|\b(?:clang(?:\+\+)?(?:-\d{1,3})?|ccec|ld\.lld|g\+\+|gcc|nvcc"
        r"|collect2): (?:fatal )?error: .{1,200})",
        _COMPILER,
        "compile",
        key="compiler",
        advice=(_EXTENSION_DO,),
    ),
    row(
        ("Cannot find bin of op",),
        r"Cannot find bin of op (?P<operator>\w{1,100})",
        _NO_BINARY,
        "configuration",
        "error",
        REASON,
        "no binary {operator}",
        advice=(_NO_BINARY_DO,),
        facts=("operator",),
    ),
    row(
        ("/opp/", "OPP_PATH", "opp_kernel", "opp kernel"),
        r"(?P<what>ASCEND_OPP_PATH.{0,60}(?:not set|not exist|is empty|invalid)"
        r"|opp[_ ]kernel.{0,60}not (?:installed|exist|found)"
        r"|(?<![\w./-])[\w./-]{0,120}?/opp/[\w./-]{1,120} ?(?:is |path )?(?:does not exist|not exist"
        r"|not found|No such file).{0,40})",
        _NO_OPP,
        "configuration",
        "error",
        REASON,
        "opp",
        advice=(_NO_OPP_DO,),
    ),
    row(
        ("SetCompileopt", "SetCompileOpt"),
        r"Set(?:Acl)?Compile[oO]pt\w{0,20}\(.{0,200}error code is (?P<error_code>\d{3,9})",
        _OPTION,
        "configuration",
        "error",
        REASON,
        "compile option",
        attribution="likely",
        advice=(_OPTION_DO,),
        facts=("error_code",),
    ),
    row(
        ("soc_version", "soc version", "SocVersion", "socVersion", "SOC_VERSION"),
        r"(?P<what>\b(?:invalid|unsupported|not supported?|unknown)\b.{0,60}\b(?:soc_version|soc version"
        r"|SocVersion)\b.{0,60}"
        r"|(?:Value \S{1,40} for parameter \S{0,6})?\b(?:soc_version|soc version"
        r"|SocVersion)\b.{0,80}\b(?:invalid|unsupported|not support(?:ed)?|unknown)\b.{0,80})",
        _SOC,
        "configuration",
        key="soc version",
        advice=(_SOC_DO,),
        flags=re.IGNORECASE,
    ),
    row(
        ("ompile op", "ompile Op", "ompile operator", "ompile the op"),
        r"[Cc]ompile (?:the )?[Oo]p(?:erator)?s?:?\s?[\[\(<'\"]{0,2}(?P<operator>[\w/.-]{1,120})"
        r"[\]\)>'\"]{0,2}.{0,80}?\b(?:fail(?:ed|ure)?|error)\b",
        _OPERATOR,
        "compile",
        key="operator {operator}",
        advice=(_OPERATOR_DO,),
        facts=("operator",),
        flags=re.IGNORECASE,
    ),
    row(
        ("ailed to compile",),
        r"[Ff]ailed to compile (?:the )?[Oo]p(?:erator)?s?:? ?[\[\(<'\"]{0,2}(?P<operator>[\w/.-]{1,120})",
        _OPERATOR,
        "compile",
        key="operator {operator}",
        advice=(_OPERATOR_DO,),
        facts=("operator",),
    ),
    row(
        ("op_compile", "OpCompile", "ompile op"),
        r"\b(?:pre-?)?compile op(?:erator)?s? failed|OpCompile\w{0,20}.{0,40}failed",
        _OPERATOR_PLAIN,
        "compile",
        "error",
        GENERIC,
        "operator",
        advice=(_OPERATOR_DO,),
        flags=re.IGNORECASE,
    ),
    row(("ATC run failed",), r"\bATC run failed", _ATC, "compile", "error", GENERIC, "atc"),
    row(
        ("uild graph failed", "uildGraph", "ompile graph failed", "ompileGraph"),
        r"\b(?:[Bb]uild|[Cc]ompile) ?[Gg]raph\w{0,20}\b.{0,40}\bfailed",
        _GRAPH,
        "compile",
        "error",
        GENERIC,
        "graph",
    ),
    row(
        ("BackendCompilerFailed", "' raised:"),
        r"BackendCompilerFailed: backend='?(?P<backend>[\w.<>-]{1,80})",
        _BACKEND,
        "compile",
        "error",
        GENERIC,
        "backend",
        advice=(_EAGER,),
    ),
    row(
        ("_inductor.exc", "InductorError", "LoweringException", "_inductor/"),
        r"(?:\bInductorError|\bLoweringException|\bCppCompileError"
        r"|\bSubprocException)\b:? ?(?P<what>.{0,200})",
        _INDUCTOR,
        "compile",
        key="inductor",
        advice=(_EAGER,),
    ),
    row(
        ("_dynamo.exc",),
        r"_dynamo\.exc\.(?:Unsupported|InternalTorchDynamoError|UserError|TorchRuntimeError"
        r"|\w{0,30}Error): ?(?P<what>.{0,200})",
        _DYNAMO,
        "compile",
        key="dynamo",
        advice=(_EAGER,),
    ),
    row(
        ("torch._dynamo hit", "cache_size_limit", "recompile_limit"),
        r"torch\._dynamo hit config\.\w{0,30}(?:recompile|cache_size)_limit.{0,20}",
        Message("torch.compile reached its limit of recompilations: the rest runs without it"),
        "usage",
        "warning",
        key="recompiles",
        advice=(_RECOMPILES_DO,),
        alone=True,
    ),
    row(
        ("WON'T CONVERT",),
        r"WON'T CONVERT (?P<function>[\w.<>]{1,120})(?: .{0,120}?due to:? ?(?P<what>.{0,120}))?",
        _CONVERT,
        "compile",
        "warning",
        CONTEXT,
        "wont convert",
    ),
)
