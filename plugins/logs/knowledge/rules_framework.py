"""What trainers, servers and libraries say in sentences of their own."""

from __future__ import annotations

import re

from ascend_tui.plugin import Message

from ..sighting import CONTEXT, GENERIC, REASON
from . import rules_host, rules_launchers
from .rule_table import Row, harmless, row

_FALLBACK = Message("operator {operator} is not supported on the NPU and runs on the CPU")
_FALLBACK_WHY = Message("each call copies its tensors to the host and back, and the device waits meanwhile")
_FALLBACK_DO = Message("look whether it is called in every step; if so, replace it, or move its data once")
_AICPU = Message("operator {operator} runs on the device's AI CPU: {what}")
_AICPU_DO = Message("cast its input to a type that the AI Core supports, where its values allow that")
_NAN_CHECK = Message("{found} found in {where}")
_NAN_DO = Message("the first rank that tells so is the place to look: watch its modules (the overflow pane)")
_MONITORED = Message("the watched metric is not finite: {what}")
_MINIMUM = Message("the loss scale is at its minimum and steps still overflow: the run gives up")
_MINIMUM_DO = Message("the scale is not the problem there: look for the first bad output (the overflow pane)")
_ENGINE = Message("vLLM's engine died: look for its reason before this line")
_ENGINE_START = Message("vLLM's engine did not start: look for its reason before this line")
_WORKER = Message("a worker process of vLLM died: {what}")
_KV_NONE = Message("no device memory is left for the KV cache")
_KV_LENGTH = Message("the KV cache is too small for a sequence of {wanted} tokens: it holds {held}")
_KV_SIZE = Message("the KV cache is too small for one sequence of full length: {wanted} needed, {held} there")
_KV_DO = Message("raise gpu_memory_utilization, lower max_model_len, or spread the model over more devices")
_PREEMPT = Message("requests are thrown out and computed again: the KV cache is full")
_BROADCAST = Message("a worker of vLLM has not answered for {seconds} s: it computes, compiles or hangs")
_BROADCAST_DO = Message("where it repeats, look at that worker's stack: a worker that hangs never answers")
_RPC = Message("a call to the workers of vLLM timed out: {what}")
_GRAPH = Message("MindSpore could not run a graph: look for its reason beside this line")
_LAUNCH = Message("MindSpore could not launch kernel {kernel}")
_NO_KERNEL = Message("MindSpore has no kernel for operator {operator} with these types or formats")
_NO_KERNEL_DO = Message("look at the types and formats that the line names: another type mostly has a kernel")
_COMPILED_GRAPH = Message("MindSpore could not compile graph {graph}")
_INTERRUPTED = Message("training was stopped by the keyboard")
_RETRACE = Message("Megatron ran a step again and got another result: {what}")
_RETRACE_DO = Message("a result that differs from itself is hardware or a race: test this device alone")

RULES: tuple[Row, ...] = (
    harmless(
        ("just got forked",), r"The current process just got forked, after parallelism has already been used"
    ),
    harmless(
        ("owner does not match", "owner of the file", "is not owned by"),
        r"owner does not match the current (?:owner|user)|[Tt]he owner of the file .{0,200}inconsistent with",
    ),
    row(
        ("fall back to run on the CPU", "fall back to CPU", "fallback to CPU", "fall back to the CPU"),
        r"[Oo]perator '(?P<operator>[\w:.]{1,120})'.{0,120}fall(?:s"
        r"|ing)?[ -]?back to (?:run on )?(?:the )?CPU",
        _FALLBACK,
        "usage",
        "info",
        key="cpu fallback {operator}",
        reason=_FALLBACK_WHY,
        advice=(_FALLBACK_DO,),
        facts=("operator",),
        alone=True,
    ),
    row(
        ("AICPU", "AiCpu", "AI CPU", "aicpu"),
        r"(?:kernel|operator|op) [\['\"]?(?P<operator>\w{2,80})[\]'\"]?,? (?P<what>(?:can ?not|does not"
        r"|not) support .{1,80}?)[,;.]? .{0,60}(?:AICPU|AiCpu|AI CPU|aicpu)",
        _AICPU,
        "usage",
        "info",
        key="aicpu {operator}",
        advice=(_AICPU_DO,),
        facts=("operator",),
        alone=True,
        flags=re.IGNORECASE,
    ),
    row(
        ("ound NaN", "ound nan", "ound Inf", "ound inf"),
        r"\b[Rr]ank (?P<rank>\d{1,7})\b:?.{0,40}?\b[Ff]ound (?P<found>NaN/Inf|NaN|nan|Inf"
        r"|inf)\b in (?P<where>[\w /-]{3,80})",
        _NAN_CHECK,
        "numeric",
        "error",
        REASON,
        "nan check {where}",
        advice=(_NAN_DO,),
    ),
    row(
        ("Unexpected result",),
        r"Unexpected result (?P<found>nan"
        r"|-?inf)\b.{0,20} on rank (?P<rank>\d{1,7}) at iteration "
        r"#(?P<step>\d{1,10}).{0,200}?(?:message='(?P<where>[^']{1,120})'|$)",
        _NAN_CHECK,
        "numeric",
        "error",
        REASON,
        "nan check result",
        advice=(_NAN_DO,),
    ),
    row(
        ("transient error", "persistent error"),
        r"(?P<what>Possible (?:transient|persistent) error\b.{0,120})",
        _RETRACE,
        "device",
        "error",
        key="rerun",
        attribution="likely",
        advice=(_RETRACE_DO,),
    ),
    row(
        ("is not finite",),
        r"Monitored metric (?P<what>[\w./ -]{1,60}= ?\S{1,20}) is not finite",
        _MONITORED,
        "numeric",
        key="monitored",
    ),
    row(
        ("oss scale already at minimum",),
        r"[Ll]oss scale already at minimum",
        _MINIMUM,
        "numeric",
        "fatal",
        REASON,
        "scale minimum",
        advice=(_MINIMUM_DO,),
    ),
    row(
        (
            "Engine core initialization failed",
            "EngineCore failed to start",
            "WorkerProc initialization failed",
        ),
        r"(?:Engine core initialization|WorkerProc initialization) failed|EngineCore failed to start",
        _ENGINE_START,
        "crash",
        "fatal",
        GENERIC,
        "engine",
    ),
    row(
        ("EngineCore", "EngineDeadError", "Engine process", "ngine loop"),
        r"EngineCore\w* (?:encountered|hit|died|process died)|EngineDeadError"
        r"|Engine process .{0,40}(?:died|failed)|[Ee]ngine loop (?:is not running|has died|died)",
        _ENGINE,
        "crash",
        "fatal",
        GENERIC,
        "engine",
    ),
    row(
        ("died unexpectedly", "WorkerProc hit an exception"),
        r"(?P<what>(?:Worker (?:proc )?[\w-]{1,40}"
        r"|\w{0,20}WorkerProc rank=\[[\d, ]{1,80}\]) died unexpectedly|WorkerProc hit an exception)",
        _WORKER,
        "crash",
        "error",
        GENERIC,
        "vllm worker",
    ),
    row(
        ("No available memory for the cache blocks",),
        r"No available memory for the cache blocks",
        _KV_NONE,
        "oom",
        "error",
        REASON,
        "kv cache",
        advice=(_KV_DO,),
    ),
    row(
        ("stored in KV cache", "stored in the KV cache"),
        r"max(?:imum)? (?:seq|model) len(?:gth)? \((?P<wanted>\d{1,12})\) is larger than the maximum "
        r"number of tokens that can be stored in (?:the )?KV cache \((?P<held>\d{1,12})\)",
        _KV_LENGTH,
        "configuration",
        "error",
        REASON,
        "kv cache length",
        advice=(_KV_DO,),
    ),
    row(
        ("KV cache is needed",),
        r"(?P<wanted>\d[\d.]{0,12} ?[GM]i?B) KV cache is needed, which is larger than the available KV "
        r"cache memory \((?P<held>\d[\d.]{0,12} ?[GM]i?B)\)",
        _KV_SIZE,
        "configuration",
        "error",
        REASON,
        "kv cache size",
        advice=(_KV_DO,),
    ),
    row(
        ("preempted by", "PreemptionMode"),
        r"is preempted by PreemptionMode\.\w{1,20} mode because there is not enough KV cache space",
        _PREEMPT,
        "usage",
        "warning",
        key="preempted",
        advice=(_KV_DO,),
        alone=True,
    ),
    row(
        ("shared memory broadcast block",),
        r"No available shared memory broadcast block found in (?P<seconds>\d{1,7}) ?s",
        _BROADCAST,
        "timeout",
        "warning",
        key="broadcast block",
        advice=(_BROADCAST_DO,),
    ),
    row(
        ("RPC call to",),
        r"(?P<what>RPC call to \w{1,60} timed out)",
        _RPC,
        "timeout",
        "error",
        GENERIC,
        "vllm rpc",
    ),
    row(
        ("xec graph failed", "xecute graph failed", "Run task for graph"),
        r"[Ee]xec(?:ute)? graph failed|Run task for graph:? ?\S{1,80} error",
        _GRAPH,
        "other",
        "error",
        GENERIC,
        "mindspore graph",
    ),
    row(
        ("aunch kernel failed",),
        r"[Ll]aunch kernel failed,? (?:kernel (?:full )?name|name): ?(?P<kernel>[\w./-]{1,200})",
        _LAUNCH,
        "device",
        "error",
        GENERIC,
        "mindspore launch",
        facts=("kernel",),
    ),
    row(
        ("select a valid kernel info",),
        r"Can not select a valid kernel info for \[(?P<operator>[\w/.-]{1,120})\]",
        _NO_KERNEL,
        "usage",
        "error",
        REASON,
        "no kernel {operator}",
        advice=(_NO_KERNEL_DO,),
        facts=("operator",),
    ),
    row(
        ("ompile graph",),
        r"[Cc]ompile graph (?P<graph>\w{1,80}) failed",
        _COMPILED_GRAPH,
        "compile",
        "error",
        GENERIC,
        "mindspore compile",
    ),
    row(
        ("KeyboardInterrupt",),
        r"Detected KeyboardInterrupt|^\s*KeyboardInterrupt\s*$",
        _INTERRUPTED,
        "other",
        "info",
        key="keyboard",
    ),
    row(
        ("See stack trace (above)", "See root cause above"),
        r"See (?:stack trace \(above\)|root cause above)",
        _ENGINE,
        "crash",
        "error",
        CONTEXT,
        "engine",
    ),
    *rules_host.RULES,
    *rules_launchers.RULES,
)
