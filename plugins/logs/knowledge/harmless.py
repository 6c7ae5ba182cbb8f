"""Lines that look alarming and are known to be nothing: what they mean decides, not which words they hold.

What is known to be harmless is taken out of the line, word by word and value by value; only where nothing
alarming is left over is the line harmless.  A line that tells of a fault beside "0 errors" stays what it is.
"""

from __future__ import annotations

import re

from ..sighting import HARMLESS, Harmless, Line

MOST = 16_000
"""Characters of a line that can still be called harmless as a whole."""
_SURE = (
    "error code is ",
    "Inner Error",
    "NPU function error",
    "errorStr",
    "[FUNC:",
    "Tried to allocate",
    "Traceback (most recent",
    "RuntimeError: ",
    "Segmentation fault",
)
"""What nobody writes of nothing; most lines of a fault hold one, and need not be taken apart."""

_EXCEPTION = r"(?-i:Error|Exception|Timeout)"
_WORDS = (
    r"errors?|err|fail(?:s|ed|ures?|ing)?|exceptions?|fatal|critical|panic|abort(?:s|ed|ing)?|crash(?:e[ds]"
    r"|ing)?"
    r"|kill(?:ed|ing)?|dead(?:lock(?:s|ed)?)?|died|dies|terminat(?:e|ed|ing)|segfault|segmentation fault"
    r"|core dumped"
    r"|time[- ]?outs?|timed out|timing out|unreachable|disconnect(?:ed)?|lost|hangs?|hung|stuck|stall(?:s"
    r"|ed)?"
    r"|corrupt(?:s|ed|ion)?|mismatch(?:e[ds])?|leak(?:s|ed|ing)?|leaks?check|out of (?:memory|bounds|range)"
    r"|oom"
    r"|nans?|infs?|infinit(?:y|e)|non-?finite|overflow(?:s|ed|ing)?|underflow(?:s|ed)?|diverge[ds]?|invalid"
    r"|illegal"
    r"|mis-?aligned|uninitiali[sz]ed|unhealthy|ecc|uce|bad|abnormal(?:ly)?|broken|refused|denied"
    r"|reset by peer|traceback"
    r"|cannot|can't|could not|unable|wrong|missing|not found|not exist|no space|sig[a-z]{3,4}|unrecoverable"
)
ALARM = re.compile(
    rf"(?<![A-Za-z0-9])(?:{_WORDS})(?![A-Za-z0-9])|{_EXCEPTION}(?![A-Za-z0-9])"
    r"|(?<![A-Za-z0-9])(?:E[A-Z0-9]\d{4}|ERR\d{5}|507\d{3}|207\d{3}|107\d{3}|SIG[A-Z]{3,5})(?![A-Za-z0-9])"
    r"|错误|失败|异常|超时|溢出|不足|泄漏|泄露|崩溃|中断|终止|非法|越界|死锁|损坏|不匹配",
    re.IGNORECASE,
)

_BAD = (
    r"(?:errors?|warnings?|failures?|failed|exceptions?|nans?|infs?|overflows?|underflows?|leaks?|timeouts?"
    r"|crashes"
    r"|violations?|mismatch(?:es)?|retries|corruptions?|anomal(?:y|ies)|hal memory leaks?)"
)
_ROLE = (
    r"(?:mean|root|median|squared?|absolute|relative|standard|percentage|average|reconstruction"
    r"|quanti[sz]ation|prediction"
    r"|approximation|calibration|rounding|generali[sz]ation|interpolation|classification|discreti[sz]ation"
    r"|word|character|phone(?:me)?|equal|token|sentence|bit|pixel|endpoint|reprojection|angular|truncation)"
)
_PART = (
    r"(?:val(?:id(?:ation)?)?|train(?:ing)?|eval(?:uation)?|test(?:ing)?|dev|top[@_ -]?\d{1,2}"
    r"|rel|abs|max|l1|l2|rms|quant|recon|pred|avg)"
)
_FIGURE = r"[-+]?(?:\d{1,12}(?:\.\d{0,18})?|\.\d{1,18})(?:e[-+]?\d{1,3})?(?![\w.]*[A-Za-z])(?:\s?%)?"
_SETTING = (
    r"(?<!\w)(?!\w{0,60}(?:detected|failed|exceeded|found|occurred|reached|_code|lost"
    r"|use_after))\w{0,40}(?:check|detect|fail_on|abort_on|raise|handle|handling|skip|ignore|allow|filter"
    r"|nan_to|policy|enable"
    r"|disable|_if_|log_|_log|report|debug|strict|replace|clip|guard|tolerance|budget|limit|max_|min_"
    r"|threshold|_window"
    r"|retry|retries|use_|_mode)\w{0,40}"
)
_SAFE_VALUE = (
    r"(?:True|False|None|null|true|false|(?:on|off|yes|no)(?! \w)|\d{1,12}(?:\.\d{1,9})?(?:e-?\d{1,2})?)"
)
_ENVIRONMENT = (
    r"(?:HCCL|TORCH|NCCL|ASCEND|PYTORCH|CUDA|VLLM|RAY|GLOO|TASK_QUEUE|ACL|NPU|OMP|MS|MINDSPORE|GRPC|TF|HF"
    r"|TRANSFORMERS|PYTHON"
    r"|XLA|UCX|CANN|INF_NAN|DS|WANDB|ENABLE|DISABLE|CPU|MULTI_STREAM|TRITON|TENSORBOARD|GLOG|TORCHELASTIC"
    r"|TORCHDYNAMO)"
)
_FILE = (
    r"(?<![\w./@+-])[\w./@+-]{0,200}\.(?:py|json|jsonl|csv|tsv|log|txt|ya?ml|pt|pth|md|html|png|pdf|svg|cpp"
    r"|cc|cxx|h|hpp|ts|cu|so|bin|pkl"
    r"|npz|npy|safetensors|db|toml|ini|cfg|sh|gz|zip|tar|parquet|onnx|om)(?![\w/])"
)
_DONE = r"(?:handled|caught|recovered|suppressed|ignored|cleared|resolved|fixed|tolerated)"
_CONDITION = (
    r"(?:if|when|whenever|unless|in case of|in the event of|to avoid|avoid(?:s|ing)?|(?:to )?prevent(?:s"
    r"|ing)?|robust to"
    r"|to handle|protects? against|guard against|checks? for|checking for|look(?:s|ing)? for|risk of"
    r"|may cause|might cause"
    r"|could cause|can cause|may lead to|might lead to|can lead to)"
)
_A_FAULT = (
    r"(?:errors?|failures?|fail|timeouts?|exceptions?|overflows?|underflows?|nans?|infs?|nan/inf|oom"
    r"|out of memory|crash(?:es)?"
    r"|deadlocks?|leaks?|hangs?|corruption|mismatch(?:es)?)"
)


def _of(*patterns: str) -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(pattern, re.IGNORECASE) for pattern in patterns)


_NOTHING_FOUND = _of(
    r"\bERROR SUMMARY: 0 errors(?: from 0 contexts)?(?: \(suppressed: \d{1,9} from \d{1,9}\))?",
    # A count of zero; "rank 0 failed" and "error code = 0" are none.
    rf"(?:^|[,;(|\]]|\b(?:found|with|had|has|have|and|got|total|detected|are|is|were"
    rf"|was))\s*0\s+(?:\w{{1,20}}\s+){{0,2}}{_BAD}\b",
    r"[:=]\s*0\s+(?:errors|failures|warnings|exceptions|timeouts|leaks|overflows)\b",
    rf"\b(?:no|zero|without(?: any)?|free of)\s+(?:(?:new|more|further|other|such|known|obvious|numerical"
    rf"|memory|hal|fatal|critical|unexpected|nan or|inf or)\s+){{0,2}}"
    rf"{_BAD}(?=\s*(?:[.,;!()|\]\-]|$|were|was|found|detected|reported|occurred|and|or|in|on|encountered))"
    r"(?:\s+(?:were |was )?(?:found|detected|reported|occurred|encountered))?",
    rf"\b(?:number of |num_|n_|total_?\s?|total )?(?:{_BAD}|skipped|bad|invalid)(?:[ _](?:iterations?"
    rf"|steps?|batches|count|counts|total|found|detected|lines|samples|records|gradients|grads))?"
    r"\s*[:=]\s*0(?:\.0{1,9})?(?![\w.])",
    r"\b(?:found_inf|found_nan|has_nan|has_inf|is_nan|is_inf|any_nan|overflow|has_overflow|found_overflow"
    r"|timed_out|failed|error|oom)\s*[:=]\s*(?:False|None|0(?:\.0)?)(?![\w.])",
    r"\bNo (?:\w{1,20} ){0,2}leaks? (?:detected|found|\(\w{1,20}\))|\bNo leaks\b",
    r"(?<!\S)(?:\S{1,200}?::\S{1,200}\s+(?:PASSED|SKIPPED|XFAIL|XPASS)|(?:PASSED|SKIPPED"
    r"|XFAIL)\s+\S{1,200}::\S{1,200})",
    r"^\s*test_\w{1,120}\b[^:]{0,120}\.\.\. ok\s*$|\[\s{1,9}OK \]\s+\S{1,200}",
    r"(?:无|没有|未发现|未检测到|没有检测到|没有发现|未出现|未发生|零|0\s*个|0\s*次|0\s*条)(?:任何|新的?|明显)?(?:梯度|内存|显存|通信|数值)?(?:错误|失败|异常"
    r"|超时|溢出|泄漏|泄露|损坏)",
    r"(?:错误|失败|异常|超时|溢出|泄漏)(?:次数|个数|数量|数|计数)?\s*[:：=]\s*0(?![\w.])",
)
"""What says that nothing was found: also a line at the level ERROR may."""

_SPEAKS_OF = _of(
    r"\bThe HCCL execution timeout\b[^!]{0,160}?\bwatchdog timeout \d{1,12} ?ms\b[^!]{0,80}!",
    rf"\b{_ROLE}(?:[ _-]\w{{1,20}}){{0,2}}[ _-](?:errors?|err)(?: rate)?\b(?:\s*\([\w-]{{1,12}}\))?",
    rf"\b{_PART}(?:[ _-](?:mean|loss|cls|reg|l1|l2|abs|rel|top\d))?[ _-](?:errors?"
    rf"|err)(?:@\d{{1,2}})?\s*[:=]?\s*{_FIGURE}",
    r"\berror (?:budget|bars?|rates?|correction|feedback|analysis|handling|handlers?|tolerance|bounds?"
    r"|margin)\b(?:\s*[:=]?\s*\d{1,9}(?:\.\d{1,9})?\s?%?)?",
    r"\b(?:standard|margin of|rounding) error\b|错误率\s*[:：=]?\s*\d[\d.]{0,12}\s?%?|错误(?:处理|分析|预算)",
    rf"\b(?:export\s+)?{_ENVIRONMENT}_[A-Z0-9_]{{2,60}}(?<!CODE)(?<!STATUS)(?<!ERRNO)(?<!RESULT)=(?:{_SAFE_VALUE}|[\w./:,-]{{1,80}}(?=\s*(?:[;'\"#&]|$|export\b)))(?:\s*#\s*\d\s*=\s*\w{{1,20}})?",
    # Settings: names of checks, and of what is to be done about a fault.
    rf"\b{_SETTING}\s*(?:=|:)\s*{_SAFE_VALUE}(?![\w.])",
    rf"['\"]{_SETTING}['\"]\s*:\s*(?:{_SAFE_VALUE}|['\"][\w ./-]{{0,60}}['\"])",
    r"\b(?:nan|error|inf|overflow|failure)_(?:policy|mode|handling|action)\s*[:=]\s*['\"]?(?:omit|ignore"
    r"|propagate|raise|warn|skip|zero|coerce|replace|strict|none)['\"]?",
    r"\berrors\s*[:=]\s*['\"](?:ignore|replace|strict|coerce|raise|surrogateescape|backslashreplace)['\"]",
    r"\b(?:log[ _-]?level|logging[ _-]?level|log_level\w{0,20}|verbosity|stderrthreshold"
    r"|loglevel)\s*(?:is |was |set )?(?:to|[:=])?\s*['\"]?(?:error|fatal|critical)\b['\"]?",
    r"\b(?:isnan|isinf|isfinite|nan_to_num|nanmean|nansum|allclose|float|set_detect_anomaly"
    r"|error_if_nonfinite)\(\s*['\"]?-?(?:nan|inf)?['\"]?|\b(?:np|numpy|math|torch|jnp"
    r"|mindspore)\.-?(?:nan|inf)\b",
    r"\bDetect(?:ing|ion of)? (?:anomaly|nan/inf) (?:mode )?(?:is )?(?:on|enabled)\b",
    # Where an infinity belongs: masks, bounds, bests so far.
    r"\b(?:filled|fill|fills|masked|mask|padded|initiali[sz]ed|starts?|init)\s+(?:with|to|by|at|as"
    r"|=)\s*-inf(?:inity)?\b",
    r"\b(?:(?:score )?min|best\w{0,30}|lower|lo|\w{1,20}_min|early_stopping best|max_(?:grad_norm|norm"
    r"|steps|epochs|tokens|len|length|time|duration|retries)|upper|temperature|top_k|patience|clip\w{0,20}"
    r"|budget|wait|monitor_op)\s*[:=]\s*[-+]?inf(?:inity)?\b",
    r"\binfinity-[\w-]{1,40}|\b(?-i:Downloading|Downloaded|Fetching|Installing|Collecting"
    r"|Using cached)\s+[\w.@/-]{1,120}",
    # Files and tests have such names.
    _FILE,
    # Faults that are spoken of, guarded against, or over.
    rf"\b{_CONDITION}\s+(?:an?y?\s+|the\s+|some\s+)?(?:(?:possible|potential|numerical|unexpected|gradient"
    rf"|memory|silent|cuda|npu|loss|communication|shape|gpu"
    rf"|further)\s+){{0,2}}(?<![-\w]){_A_FAULT}(?:,? (?:or|and) {_A_FAULT})?\b(?:\s+(?:occurs?|happens?"
    rf"|arises?|is (?:raised|detected|found)|in (?:a )?(?:future|the future)))?",
    r"\bon (?:errors?|failures?|exceptions?|timeouts?|nan|overflow|oom)\b(?=[\s:=,]+(?:retry|retries"
    r"|abort|raise|skip|continue|stop|exit|ignore|restart|warn|log)\b)(?:[\s:=,]+(?:abort|exit)\b)?",
    rf"\b(?:\w{{0,60}}(?:Error|Exception|Timeout)|errors?|failures?|timeouts?|exceptions?)(?:\s+(?:was"
    rf"|were|is|has been|got))?\s+{_DONE}\b",
    r"\battempt \d{1,4}(?:/\d{1,4})? (?:failed|timed out)\b[^.;]{0,60}?[,;]? (?:attempt|retry"
    r"|try) \d{1,4} (?:succeeded|ok|passed)\b",
    r"\b(?:recovered from|(?:successfully )?retried after|succeeded after|continuing after)\s+(?:an? "
    r"|the )?(?:\w{1,20} ){0,2}(?:error|timeout|failure|exception)s?\b",
    rf"\b(?:regist\w{{1,8}}|install\w{{0,5}}|add(?:ed|ing)?|set(?:ting)?(?: up)?|enabl\w{{1,4}}"
    rf"|attach\w{{0,4}})\s+(?:an? |the )?(?:\w{{1,20}} ){{0,2}}?(?:exception|error|signal|fault|failure"
    rf"|timeout|oom|nan|overflow|crash|sig\w{{3,4}})\w{{0,3}}[\s-](?:hooks?|handlers?|callbacks?|filters?"
    rf"|listeners?|guards?|watchers?|checks?|detect\w{{0,5}})(?:\s+for\s+(?:\w{{0,60}}{_EXCEPTION}"
    rf"|SIG[A-Z]{{3,5}}|errors?|nan|inf)(?:(?:, | and |/)(?:\w{{0,60}}{_EXCEPTION}|SIG[A-Z]{{3,5}}|nan"
    rf"|inf)){{0,12}})?",
    rf"\bexcept(?:ions)? (?:of|for|on|hooks for)\s+\w{{0,60}}{_EXCEPTION}(?:(?:, "
    rf"| and )\w{{0,60}}{_EXCEPTION}){{0,12}}\b(?= (?:are|is|will be) (?:handled|caught|ignored))",
    # Times that are settings, and advice of libraries that is printed with each healthy start.
    r"\b\w{0,40}time_?out\w{0,20}\s*=\s*\d{1,12}(?:\.\d{1,6})?\s?(?:ms|s|sec|seconds|minutes|min|m"
    r"|h)?(?![\w.])|\btime_?out\w{0,20}\s+(?:is |was |has been )?set to\s+(?:\d{1,12}(?:\.\d{1,6})?"
    r"|never timeout)",
    r"\bCannot create tensor with \w{0,12} ?format while dim < \d, tensor will be created with \w{0,12} "
    r"format",
    r"\bStart index \d{1,9} is out of bounds\. Device \d{1,4} has a total of \d{1,9} MSTX events",
    r"\bException ignored in: <[^\n]{0,200}",
    r"防止(?:梯度)?(?:溢出|超时|错误|泄漏)|避免(?:梯度)?(?:溢出|超时|错误|显存不足|内存不足|泄漏)|(?:异常|溢出|错误)检测(?:已)?(?:开启|启用|关闭)"
    r"|超时时间\s*(?:为|设为|设置为|[:：=])\s*\d{1,9}",
)
"""What only speaks of faults: settings, metrics, advice, names."""
_DUMP = re.compile(r"\b(?:Namespace|\w{0,40}Arguments|\w{0,40}Config|\w{0,40}Args)\(")
_DUMP_ROW = re.compile(
    r"^\s*(?:\[\w{1,40}\.py:\d{1,6}:\w{1,30}\]\s*)?[\w.]{1,80} \.{3,80} ?(?:True|False|None"
    r"|[\w./:'\"\[\](),-]{0,200})\s*$"
)
_LATER = re.compile(
    r"\b(?:Pending)?Deprecat(?:ion|ed)\w{0,8}\b|\bFutureWarning\b|\bis deprecated\b|\bwill be removed\b",
    re.IGNORECASE,
)
_LATER_SAYS = re.compile(
    r"\b(?:will|would|may|can|could) (?:be(?:come)?|raise|result in|throw|trigger|lead to"
    r"|cause)(?: \w{1,20}){0,3}? "
    rf"(?:errors?|exceptions?|failures?|\w{{0,60}}{_EXCEPTION})|\b(?:cannot|can't|could not|unable|wrong"
    rf"|missing|invalid)\b",
    re.IGNORECASE,
)


def sight(line: Line) -> Harmless | None:
    """Tell whether a line is harmless: something alarming is in it, and all of that is known to be "
    "nothing."""
    text = line.body
    if len(text) > MOST or any(one in text for one in _SURE) or not ALARM.search(text):
        return None
    for pattern in _NOTHING_FOUND:
        text = pattern.sub(" · ", text)
    if line.level not in ("error", "fatal"):
        text = _DUMP_ROW.sub(" · ", text)
        text = _without_dump(text)
        if _LATER.search(text):
            text = _LATER_SAYS.sub(" · ", text)
        for pattern in _SPEAKS_OF:
            text = pattern.sub(" · ", text)
    return None if ALARM.search(text) else HARMLESS


def _without_dump(text: str) -> str:
    """Return a line without the settings that a program prints when it starts, up to their closing "
    "bracket."""
    found = _DUMP.search(text)
    if found is None:
        return text
    depth, at = 1, found.end()
    while at < len(text) and depth:
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        at += 1
    return text[: found.start()] + " · " + text[at:]
