"""What goes wrong beside the device: disks, shared memory, checkpoints, libraries and their versions."""

from __future__ import annotations

import re

from ascend_tui.plugin import Message

from ..sighting import GENERIC, REASON
from .rule_table import Row, row

_SHM = Message("a data loader worker ran out of shared memory (/dev/shm)")
_SHM_DO = Message("give the container more shared memory (--shm-size, --ipc=host), or use fewer workers")
_LOADER = Message("a data loader worker ended unexpectedly")
_LOADER_DO = Message("set num_workers=0 once: then the worker's own error is shown")
_DISK = Message("the disk is full: {what}")
_DISK_DO = Message("free space where checkpoints and logs go, then look whether the last checkpoint is whole")
_QUOTA = Message("the disk quota is used up: {what}")
_FILES = Message("too many files are open at once")
_FILES_DO = Message('raise ulimit -n, or use torch.multiprocessing.set_sharing_strategy("file_system")')
_CUT = Message("a file of the checkpoint could not be read: it is cut or damaged")
_CUT_DO = Message("compare its size with the original, and load the checkpoint before it")
_WRITTEN = Message("a checkpoint could not be written: {what}")
_SIZES = Message("checkpoint and model differ: {parameter} is {saved} there and {wanted} here")
_SIZES_DO = Message(
    "load it into the model of the same configuration (vocabulary, hidden size, layers, experts)"
)
_STATE = Message("the checkpoint does not fit the model {model}")
_KEYS = Message("names of the checkpoint do not fit the model: {what}")
_NEW = Message("weights that the checkpoint does not hold were initialised anew: {model}")
_RANDOM = Message("no checkpoint was found: training starts from random weights")
_LONG = Message("a text is longer than the model takes: {tokens} tokens of at most {most}")
_LONG_DO = Message("cut or split such texts: positions beyond the end are out of the embedding's range")
_VERSION = Message("versions do not fit together: {what}")
_VERSION_DO = Message(
    "look first at the versions of driver, firmware, CANN and torch_npu: a pair that does not fit explains "
    "much"
)
_LIBRARY = Message("a library of CANN is not found: {library}")
_LIBRARY_DO = Message(
    "source CANN's set_env.sh in this shell, and look that only one CANN is in LD_LIBRARY_PATH"
)
_NO_SYMBOL = Message("a library does not fit the one it was built for: {what}")

RULES: tuple[Row, ...] = (
    row(
        ("shared memory", "bus error encountered in worker"),
        r"out of shared memory|insufficient shared memory|bus error encountered in worker"
        r"|unable to (?:open|write|allocate) (?:to )?(?:shared memory|file </torch_)",
        _SHM,
        "configuration",
        "error",
        REASON,
        "shm",
        advice=(_SHM_DO,),
        flags=re.IGNORECASE,
    ),
    row(
        ("exited unexpectedly",),
        r"DataLoader worker \(pid\(?s?\)? (?P<workers>[\d, ]{1,200})\) exited unexpectedly",
        _LOADER,
        "crash",
        "error",
        GENERIC,
        "data loader",
        advice=(_LOADER_DO,),
    ),
    row(
        ("No space left on device",),
        r"(?P<what>No space left on device.{0,200})",
        _DISK,
        "configuration",
        "error",
        REASON,
        "disk full",
        advice=(_DISK_DO,),
    ),
    row(
        ("Disk quota exceeded",),
        r"(?P<what>Disk quota exceeded.{0,200})",
        _QUOTA,
        "configuration",
        "error",
        REASON,
        "disk quota",
        advice=(_DISK_DO,),
    ),
    row(
        ("Too many open files",),
        r"Too many open files",
        _FILES,
        "configuration",
        "error",
        REASON,
        "open files",
        advice=(_FILES_DO,),
    ),
    row(
        ("PytorchStreamWriter", "inline_container"),
        r"(?P<what>PytorchStreamWriter failed writing .{0,120}|unexpected pos \d{1,18} vs \d{1,18})",
        _WRITTEN,
        "configuration",
        "error",
        key="not written",
        attribution="likely",
        advice=(_DISK_DO,),
    ),
    row(
        (
            "PytorchStreamReader",
            "unexpected EOF",
            "invalid load key",
            "deserializing header",
            "InvalidHeader",
            "HeaderTooLarge",
            "IncompleteBuffer",
            "InvalidMagic",
        ),
        r"PytorchStreamReader failed|unexpected EOF, expected \d{1,18} more bytes|invalid load key"
        r"|rror while deserializing header|HeaderTooLarge|IncompleteBuffer",
        _CUT,
        "configuration",
        "error",
        REASON,
        "checkpoint damaged",
        advice=(_CUT_DO,),
    ),
    row(
        ("size mismatch for",),
        r"size mismatch for (?P<parameter>[\w.]{1,200}): copying a param(?:eter)? with shape "
        r"(?:torch\.Size\()?(?P<saved>[\[(][\d, ]{0,80}[\])])\)? from checkpoint,? the shape in current "
        r"model is (?:torch\.Size\()?(?P<wanted>[\[(][\d, ]{0,80}[\])])",
        _SIZES,
        "usage",
        "error",
        REASON,
        "checkpoint sizes",
        advice=(_SIZES_DO,),
        facts=("parameter",),
    ),
    row(
        ("in loading state_dict for",),
        r"Error\(s\) in loading state_dict for (?P<model>[\w.]{1,120})",
        _STATE,
        "usage",
        "error",
        GENERIC,
        "state_dict",
        advice=(_SIZES_DO,),
    ),
    row(
        ("in state_dict:",),
        r"(?P<what>(?:Missing|Unexpected) key\(s\) in state_dict: .{0,160})",
        _KEYS,
        "usage",
        "error",
        key="state_dict keys",
        advice=(_SIZES_DO,),
    ),
    row(
        ("newly initialized", "were not initialized from the model checkpoint"),
        r"weights of (?P<model>\w{1,120}) were not initialized from the model checkpoint",
        _NEW,
        "usage",
        "info",
        key="new weights",
        alone=True,
    ),
    row(
        ("start from random",),
        r"will not load any checkpoints and will start from random",
        _RANDOM,
        "configuration",
        "info",
        key="random weights",
        alone=True,
    ),
    row(
        ("Token indices sequence length is longer",),
        r"Token indices sequence length is longer than the specified maximum sequence length for this "
        r"model \((?P<tokens>\d{1,12}) > (?P<most>\d{1,12})\)",
        _LONG,
        "usage",
        "warning",
        key="long text",
        advice=(_LONG_DO,),
        alone=True,
    ),
    row(
        (": cannot open shared object file",),
        r"(?P<library>lib(?:ascend|acl|hccl|hccp|ge_|graph|runtime|msprof|c_sec|drv|dcmi|te_|tiling|opapi"
        r"|atb|nnopbase|error_manager|platform|register"
        r"|metadef)[\w.+-]{0,80}): cannot open shared object file",
        _LIBRARY,
        "configuration",
        "error",
        REASON,
        "cann library",
        advice=(_LIBRARY_DO,),
        facts=("library",),
    ),
    row(
        ("undefined symbol", "GLIBCXX", "CXXABI", "GLIBC_", "undefined reference"),
        r"(?P<what>(?:[\w.+-]{1,80}: )?undefined symbol: \w{1,120}|version `?(?:GLIBCXX|CXXABI"
        r"|GLIBC)_[\d.]{1,12}'? not found)",
        _NO_SYMBOL,
        "configuration",
        "error",
        REASON,
        "symbol",
        advice=(_VERSION_DO,),
    ),
    row(
        (" not match", "ismatch", "ot compatible", "ncompatible", " too old", " too low", " too new"),
        r"(?=.{0,300}version)(?P<what>(?<![\[/\w])(?:CANN|HDK|driver|firmware|torch_npu|torch|PyTorch"
        r"|toolkit|MindSpore|Ascend AI software package|hccl|opp|runtime|MindSpeed"
        r"|vllm(?:-ascend)?)\b.{0,120}?(?<!may be )(?<!whether )\b(?:does not match|do not match"
        r"|did not match|mismatch(?:es|ed)?|(?:is|are) not compatible|incompatible with|is too (?:old|low"
        r"|new))\b.{0,80})",
        _VERSION,
        "configuration",
        "warning",
        key="versions",
        attribution="likely",
        advice=(_VERSION_DO,),
        alone=True,
        flags=re.IGNORECASE,
    ),
)
