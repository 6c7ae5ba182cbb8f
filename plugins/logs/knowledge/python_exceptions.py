"""What Python's exceptions mean, by their type and their words, first match wins."""

from __future__ import annotations

import re

from ascend_tui.frozen import frozen
from ascend_tui.plugin import Attribution, Category, Message, Severity

from ..sighting import GENERIC, SPECIFIC
from .endings import FIRST


@frozen
class Meaning:
    """What an exception is: `types` are names of its class, `words` a pattern of its text; both must fit."""

    category: Category
    key: str
    types: re.Pattern[str]
    words: re.Pattern[str] | None = None
    knows: int = SPECIFIC
    severity: Severity = "error"
    attribution: Attribution = "exact"
    reason: Message | None = None
    advice: tuple[Message, ...] = ()


_ANY = r"\w+"
SCALE = "scale zero"
"""Only where the frames are those of a scaler, or unknown."""
_SHAPES = Message("look at the shapes that the line names, at the frame of your own code")
_IMPORT = Message("look whether this Python has the package in the version that the program wants (pip list)")
_PATH = Message("look at the path: seen from this process, container and machine, on every node")
_PORT = Message("another process holds the port, maybe an earlier run: end it, or choose another port")
_PEER = Message("look at the logs of the other ranks: the first that failed tells why the others waited")
_HUB = Message("without a network set HF_HUB_OFFLINE=1 and give local paths")
_SCALER = Message("with loss scaling most often a loss scale that fell to zero, whose inverse is asked for")
_SCALER_DO = Message("the scale is not the problem there: look for the first bad output (the overflow pane)")
_NAN_DO = Message("look for the first module whose output is not finite (the overflow pane)")
_HOST = Message("the memory of the host ran out, not that of the device")
_DEVICE_WRAPPER = Message("look for the runtime's own lines beside it: they tell the reason")
_VISIBLE = Message("look with npu-smi info which devices there are, and at ASCEND_RT_VISIBLE_DEVICES")


def _of(
    category: Category,
    key: str,
    types: str = _ANY,
    words: str = "",
    knows: int = SPECIFIC,
    severity: Severity = "error",
    attribution: Attribution = "exact",
    reason: Message | None = None,
    advice: tuple[Message, ...] = (),
) -> Meaning:
    return Meaning(
        category,
        key,
        re.compile(types),
        re.compile(words, re.IGNORECASE) if words else None,
        knows,
        severity,
        attribution,
        reason,
        advice,
    )


MEANINGS: tuple[Meaning, ...] = (
    _of("other", "keyboard", "KeyboardInterrupt", severity="info"),
    _of("other", "exit", "SystemExit", r"^\s*(?:0|None)?\s*$", severity="info"),
    _of("numeric", "exit not finite", "SystemExit", r"\bloss is (?:nan|inf|not finite)", advice=(_NAN_DO,)),
    _of("crash", "exit", "SystemExit", knows=GENERIC, advice=(FIRST,)),
    _of("oom", "host memory", "MemoryError|_ArrayMemoryError", reason=_HOST),
    _of("oom", "memory", "OutOfMemoryError"),
    # The runtime's wrappers: the rules of their text know more, where they know it.
    _of(
        "device",
        "device wrapper",
        _ANY,
        r"\b(?:NPU|ACL|CANN) (?:function )?error\b|\bCUDA error: (?!out of memory)|call acl api failed"
        r"|\berror code is 507\d{3}",
        knows=GENERIC,
        attribution="async",
        reason=_DEVICE_WRAPPER,
    ),
    _of(
        "device",
        "operator wrapper",
        _ANY,
        r"\bcall aclnn\w{1,80} failed, detail:\s*(?:E[A-Z0-9]9\d{3}: ?)?(?:Inner Error!?)?\s*$",
        knows=GENERIC,
        attribution="likely",
        reason=_DEVICE_WRAPPER,
    ),
    _of(
        "communication",
        "collective wrapper",
        _ANY,
        r"\bHCCL (?:function )?error in: |call hccl api failed",
        knows=GENERIC,
        attribution="likely",
        reason=_DEVICE_WRAPPER,
        advice=(_PEER,),
    ),
    _of(
        "communication",
        "address in use",
        _ANY,
        r"address already in use|EADDRINUSE",
        advice=(_PORT,),
    ),
    _of(
        "timeout",
        "distributed timeout",
        r"Dist\w*Error|TimeoutError|RuntimeError|Exception|GetTimeoutError|StoreTimeout\w*|Rendezvous\w+"
        r"|ReadTimeout\w*|TimeoutExpired",
        r"timed? ?out|timeout|wait(?:ed|ing)? (?:for )?too long",
        advice=(_PEER,),
    ),
    _of("communication", "distributed", r"Dist\w+Error|Rendezvous\w+", advice=(_PEER,)),
    _of(
        "communication",
        "peer",
        r"Connection\w*Error|BrokenPipeError|EOFError|RuntimeError|RpcError|\w*Unavailable\w*",
        r"connection (?:reset|refused|closed|aborted)|broken pipe|\b[HN]CCL\b.{0,60}\b(?:error|failed)"
        r"|gloo.{0,80}(?:closed|reset|refused)|socket closed|failed to connect",
        advice=(_PEER,),
    ),
    _of("communication", "peer", r"Connection\w*Error|BrokenPipeError|ProtocolError", advice=(_PEER,)),
    _of("timeout", "timeout", r"\w*Timeout\w*"),
    _of(
        "configuration",
        "hub",
        r"OSError|EnvironmentError|LocalEntryNotFoundError|OfflineModeIsEnabled|HfHubHTTPError"
        r"|RepositoryNotFoundError|GatedRepoError|EntryNotFoundError|HTTPError",
        r"huggingface\.co|hf\.co|is not a (?:local folder|valid model identifier)|modelscope|hub|gated repo",
        advice=(_HUB,),
    ),
    _of(
        "numeric",
        SCALE,
        "ZeroDivisionError",
        r"float division by zero",
        attribution="likely",
        reason=_SCALER,
        advice=(_SCALER_DO,),
    ),
    _of(
        "numeric",
        "not finite",
        r"(?!OverflowError|KeyError|ImportError|AttributeError|NameError|TypeError|FileNotFoundError"
        r"|ModuleNotFoundError|NotImplementedError)\w+",
        r"(?<![\w.])(?:nan|inf|infinit[ey]|non-?finite|not finite)(?:s|\b)(?!\s*(?:is "
        r"|are )?not (?:allowed as|a valid (?:option|key)|supported)|_\w)",
        advice=(_NAN_DO,),
    ),
    _of(
        "numeric",
        "float overflow",
        "OverflowError|FloatingPointError",
        r"float|exp|infinity|result out of range|math range|result too large",
        advice=(_NAN_DO,),
    ),
    _of("numeric", "floating point", "FloatingPointError", advice=(_NAN_DO,)),
    _of(
        "numeric",
        "linear algebra",
        r"\w*LinAlgError|RuntimeError",
        r"ill-conditioned|not positive.?definite|singular matrix|did not converge|failed to converge",
        advice=(_NAN_DO,),
    ),
    _of(
        "numeric",
        "loss scale",
        _ANY,
        r"loss scale already at minimum",
        severity="fatal",
        advice=(_SCALER_DO,),
    ),
    _of(
        "configuration",
        "import",
        "ImportError|ModuleNotFoundError|PackageNotFoundError|VersionConflict|DistributionNotFound",
        advice=(_IMPORT,),
    ),
    _of(
        "configuration",
        "file",
        "FileNotFoundError|NotADirectoryError|IsADirectoryError|PermissionError|FileExistsError",
        advice=(_PATH,),
    ),
    _of("configuration", "system", "OSError|IOError", r"\[Errno \d{1,3}\]", advice=(_PATH,)),
    _of(
        "configuration", "checkpoint", "UnpicklingError|SafetensorError|BadZipFile|LzmaError", advice=(_PATH,)
    ),
    _of(
        "configuration",
        "device missing",
        _ANY,
        r"not compiled with CUDA|no (?:NPU|CUDA|GPU)s? (?:devices? )?(?:is|are|available)"
        r"|invalid device (?:ID|ordinal)|found no NVIDIA driver|device count|NPU is not available",
        advice=(_VISIBLE,),
    ),
    _of(
        "configuration",
        "settings",
        r"MisconfigurationException|Config\w*Error|ValidationError|ArgumentError|ParserError|ScannerError"
        r"|YAMLError|JSONDecodeError|TOMLDecodeError|OmegaConf\w+|Missing\w+|UsageError|BadParameter",
    ),
    _of("usage", "not supported", "NotImplementedError", advice=()),
    _of(
        "usage",
        "shapes",
        r"RuntimeError|ValueError|AssertionError|IndexError|Exception|\w*ShapeError",
        r"shapes?\b|size of tensor|size mismatch|sizes? (?:of|do|must|must match|don't)|dimension|dim \d"
        r"|broadcast|mat1 and mat2|k-axis|input_?size|inner dimension|same (?:number of elements|shape"
        r"|size)|out of range|index \d{1,12} is out of bounds",
        advice=(_SHAPES,),
    ),
    _of(
        "usage",
        "types",
        r"RuntimeError|ValueError|AssertionError|Exception",
        r"dtype|scalar type|expected .{0,60}\bbut (?:got|found|input)|same device|is on (?:cpu|npu|cuda)"
        r"|found at least two devices|must be|should be|requires? (?:a )?grad|not implemented for"
        r"|unsupported|invalid (?:argument|value|shape)|modified by an inplace operation"
        r"|backward through the graph a second time|unused parameters|Expected to (?:have finished"
        r"|mark a variable)",
    ),
    _of("usage", "state_dict", "RuntimeError", r"loading state_dict|missing key|unexpected key"),
    _of(
        "usage",
        "type",
        r"TypeError|ValueError|KeyError|IndexError|AttributeError|NameError|UnboundLocalError"
        r"|AssertionError|SyntaxError|IndentationError|TabError|StopIteration|LookupError|Unicode\w*Error"
        r"|RecursionError|BufferError|\w*KeyError|InstantiationException",
    ),
    _of("crash", "arithmetic", r"ZeroDivisionError|OverflowError|FloatingPointError|ArithmeticError"),
    _of(
        "crash",
        "wrapper",
        r"ChildFailedError|Process(?:Exited|Raised)Exception|BrokenProcessPool|RayActorError"
        r"|ActorDiedError|WorkerCrashedError|\w*Engine\w*DeadError|EngineDeadError|CalledProcessError"
        r"|\w*WorkerError|RayTaskError|TaskUnschedulable\w*|SignalException",
        knows=GENERIC,
        advice=(FIRST,),
    ),
    _of("other", "cancelled", "CancelledError|GeneratorExit", knows=GENERIC, severity="warning"),
    _of("other", "exception", _ANY),
)
