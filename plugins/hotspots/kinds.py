"""What an operator does with its time, told by its name: of torch, of a kernel on Ascend, of an API's call.

A name tells no more than that: a kernel that both computes and communicates is filed under computing, and a
torch operator that calls others (`aten::to`) under what those do.
"""

from __future__ import annotations

import re
from functools import lru_cache

from .snapshot import Kind

_COMMUNICATING_CORES = frozenset(("hccl", "communication", "hcom", "ccu"))
_COMPUTING_CORES = frozenset(
    (
        "ai_core",
        "ai_vector_core",
        "ai_cpu",
        "aicpu",
        "aicore",
        "aivec",
        "mix_aic",
        "mix_aiv",
        "dsa_sqe",
        "dsa",
    )
)
_WAITING_CORES = re.compile(r"(event|notify|stream)_?(wait|record|sync)|^wait|^(event|notify)", re.I)
_COPYING_CORES = re.compile(r"memcpy|mem_copy|memset|sdma|dvpp_copy", re.I)

_COMMUNICATION = re.compile(
    r"^hcom|^hccl|^hccs|^c10d|^nccl|^gloo|^mpi:|^lccl|^record_param_comms|^distributed::|c10d_functional"
    r"|all_?reduce|all_?gather|all_?to_?all|reduce_?scatter|batch_?send_?recv|^aivkernel|^aiv_(all|reduce|broad)"
    r"|^notify_(wait|record)|rdma_?send|^reduce_inline|moedistribute(dispatch|combine)|^(send|recv|receive)_?$"
    r"|^broadcast_?$|^(i?send|i?recv)_?$"
)
_MULTIPLIES = re.compile(r"mat_?mul|gemm")
"""A product with a collective in it (MatmulAllReduce, AllGatherMatmul) computes."""

_SYNCHRONISATION = re.compile(
    r"synchroni[sz]e|streamsync|stream_sync|devicesync|eventsync|_local_scalar_dense|^item$|^is_nonzero$"
    r"|event_?wait|wait_?event$|event_?record|^(npu|cuda)_?sync|syncstream|syncdevice"
)
_COPY_CALL = re.compile(r"mem_?cpy|mem_?copy|mem_?set|memset")
_CALL = re.compile(
    r"^(acl(rt|mdl|op|prof)|rts?[A-Z]|hal[A-Z]|cuda[A-Z]|cu[A-Z]|mspti)|^(Kernel|Task)?Launch(Kernel)?$|^launch$"
    r"|^(Dev|Host)(Malloc|Free)|^(Stream|Event|Context|Device)(Create|Destroy|Record|Query|Reset|Set|Get|Wait|Sync)"
)

_HOST = re.compile(
    r"^autograd::|evaluate_function|accumulategrad|^optimizer\.|^enumerate\(|^profilerstep|^dataloader"
    r"|^(data|distributeddata)parallel|^fullyshardeddata|^torch-compiled|^torchdynamo|^compiledf(unction|xgraph)"
    r"|^## call|^nn\.module|^python|\.py\(\d+\)|^gc$|^enqueue|^dequeue|^inductor|^call compiledfx"
)
_BACKWARD = re.compile(r"[A-Za-z0-9]Backward\d*$")
"""A node of torch's backward: what it calls has rows of its own."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_VIEWS = _words(
    """
    view reshape view_as reshape_as _unsafe_view _reshape_alias t transpose transpose_ permute expand
    expand_as as_strided as_strided_ slice select narrow unsqueeze unsqueeze_ squeeze squeeze_ detach detach_
    alias split split_with_sizes chunk unbind unfold diagonal movedim swapaxes flatten unflatten lift_fresh
    real imag view_as_real view_as_complex set_ resize_ resize_as_ empty empty_like empty_strided new_empty
    new_empty_strided result_type can_cast is_pinned resolve_conj resolve_neg requires_grad_ size stride
    """
)
"""Torch operators that make a view or get memory: their time is that of the host."""

_MOVES = _words(
    """
    copy_ copy _to_copy to type_as contiguous clone cat _cat concat stack index index_ index_select index_put
    index_put_ _index_put_impl_ gather scatter scatter_ embedding repeat repeat_interleave tile roll flip
    rot90 pad constant_pad_nd fill_ zero_ zeros ones zeros_like ones_like full full_like new_zeros new_ones
    new_full masked_select take take_along_dim slice_scatter select_scatter slice_backward select_backward
    embedding_renorm_ pin_memory _pin_memory npu_format_cast npu_dtype_cast _npu_dtype_cast npu_transpose
    copy_memory_ npu_slice _foreach_copy_ _foreach_zero_ triu tril triu_ tril_ unfold_backward
    """
)
"""Torch operators that write memory and compute nothing."""

_MOVING_KERNEL = re.compile(
    r"cast(aicore|v\d)?$|^trans_?data|transpose|permute|^concat|^split|^slice|stridedslice|^gather|^scatter"
    r"|^pad(v\d|d)?$|^(mirror|constant)?pad|^tile(d|v\d)?$|broadcastto|^pack$|^unpack$|^stack$|^unstack$|identity"
    r"|tensormove|viewcopy|asstrided|^as_strided|inplacecopy|^expand(d|v\d)?$|^reshape|^flatten|memcpy|mem_?set"
    r"|zeroslike|oneslike|^fill(d|v\d)?$|^zeros|^ones|^index(put|select|fill)?(v\d|d)?$|indexput|^embedding(v\d)?$"
    r"|^copy|_copy_|^copy_kernel|direct_copy|catarray|^dtoh|^htod|transdata|im2col|col2im|^roll|^reverse|^squeeze"
    r"|^unsqueeze|^strideslice|kvcache|reshapeandcache|^write_?back|^invalid$|depthtospace|spacetodepth|contiguous"
)
_AFTER = re.compile(r"(?:ai_?core|aicpu|_?tik)$")
_CAMEL = re.compile(r"[A-Z][A-Za-z0-9]*")
_KNOWN = re.compile(
    r"matmul|gemm|conv|attention|norm|gelu|relu|softmax|^add|^mul|^sub|^div|kernel|triton|elementwise|reduce_"
)


@lru_cache(maxsize=8192)
def kind_of(name: str, core: str = "", level: str = "") -> Kind:
    """Return what a row does with its time.

    `core` is what it ran on, `level` the layer of the API, both in the profile's own word: they win over the
    name, because a kernel may be called anything.
    """
    bare, where = name.strip(), core.strip().lower()
    where = "" if where in ("n/a", "na", "none", "null", "invalid") else where
    lower = _plain(bare)
    if where in _COMMUNICATING_CORES or where.startswith(("hccl", "comm")):
        return "communication"
    if level.strip() and level.strip().lower() not in ("n/a", "kernel", "device"):
        return _of_call(lower, level.strip().lower())
    if _WAITING_CORES.search(where):
        return "synchronisation"
    if _COPYING_CORES.search(where):
        return "movement"
    if _COMMUNICATION.search(lower) and not _MULTIPLIES.search(lower):
        return "communication"
    if "::" in bare and not bare.startswith(("autograd::", "torch::", "void ", "at::native")):
        return _of_torch(lower)
    if where not in _COMPUTING_CORES and not where.startswith(("ai", "mix")):
        if _HOST.search(bare.lower()) or _BACKWARD.search(bare) or bare in _VIEWS:
            return "host"
        if _SYNCHRONISATION.search(lower):
            return "synchronisation"
        if _CALL.search(bare):
            return _of_call(lower, "")
    if _MOVING_KERNEL.search(_AFTER.sub("", lower)):
        return "movement"
    known = where or lower != bare.lower() or _CAMEL.fullmatch(bare) or _KNOWN.search(lower)
    return "compute" if known else "other"


def _of_torch(name: str) -> Kind:
    if _SYNCHRONISATION.search(name):
        return "synchronisation"
    if name in _VIEWS:
        return "host"
    return "movement" if name in _MOVES else "compute"


def _of_call(name: str, level: str) -> Kind:
    if level in ("hccl", "hcom", "communication") or _COMMUNICATION.search(name):
        return "communication"
    if _SYNCHRONISATION.search(name) and "record" not in name and "wait" not in name:
        return "synchronisation"
    return "movement" if _COPY_CALL.search(name) else "host"


def _plain(name: str) -> str:
    """Return the name without its namespace, prefixes and running number, in lower case.

    Of `aclnnMm_CastAiCore_Cast` the last part is the kernel, the first only who asked for it.
    """
    bare = stem(name)
    if bare.startswith("aclnn"):
        bare = bare[len("aclnn") :].rpartition("_")[2] or bare
    elif bare.startswith("trans_"):
        bare = bare[len("trans_") :]
    elif "::" in bare and not bare.startswith(("autograd::", "void ", "c10d", "_c10d")):
        bare = bare.rpartition("::")[2]
    return bare.lower()


_NUMBERED = re.compile(r"(?:[_-]\d+)+$")
_DIRECT = re.compile(r"(?P<base>[A-Z][A-Za-z0-9]*?[A-Za-z])(?P<number>\d+)$")
_VERSION = re.compile(r"(?P<base>.*[A-Za-z]V\d)\d*$")
_PART_OF_NAME = re.compile(
    r"(?:Log2|Exp2|Atan2|Expm1|Relu6|Backward\d+|(?:U?[Ii]nt|[FfBb][Pp]|[Bb][Ff]|[Ff]loat|[HT]F|Level|Stage)\d+)$"
)


@lru_cache(maxsize=8192)
def stem(name: str) -> str:
    """Return the name without the number that only counts: of a graph's node or of a call in turn.

    `MatMulV2` is another kernel than `MatMulV3`, `triton_poi_fused_3` than `triton_poi_fused_4`, and so is a
    name in small letters whose number may be its own: those stay.
    """
    bare = name.strip()
    if not bare or not bare[-1].isdigit() or "::" in bare or bare.startswith("triton_"):
        return bare
    cut = _NUMBERED.sub("", bare)
    if cut and cut != bare:
        counted = cut.startswith(("hcom_", "trans_", "atomic_memset")) or _CAMEL.search(cut)
        return (stem(cut) if _CAMEL.search(cut) else cut) if counted else bare
    head, mark, last = bare.rpartition("_")
    if _PART_OF_NAME.search(last):
        return bare
    version = _VERSION.match(last)
    if version:
        return head + mark + version["base"]
    direct = _DIRECT.match(last)
    return head + mark + direct["base"] if direct else bare
