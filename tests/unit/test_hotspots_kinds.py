"""What a name tells: the kind of an operator, and which names are those of one operator."""

from __future__ import annotations

import pytest
from ascend_tui_plugins.hotspots.kinds import kind_of, stem


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("aten::addmm", "compute"),
        ("aten::nonzero", "compute"),
        ("npu::npu_fusion_attention", "compute"),
        ("mine::scan", "compute"),
        ("aten::copy_", "movement"),
        ("aten::_to_copy", "movement"),
        ("aten::cat", "movement"),
        ("aten::embedding", "movement"),
        ("aten::transpose", "host"),
        ("aten::view", "host"),
        ("aten::empty_strided", "host"),
        ("aten::item", "synchronisation"),
        ("aten::_local_scalar_dense", "synchronisation"),
        ("c10d::allreduce_", "communication"),
        ("_c10d_functional::all_gather_into_tensor", "communication"),
        ("gloo:all_reduce", "communication"),
        ("record_param_comms", "communication"),
        ("autograd::engine::evaluate_function: AddmmBackward0", "host"),
        ("AddmmBackward0", "host"),
        ("TBackward0", "host"),
        ("detach", "host"),
        ("torch::autograd::AccumulateGrad", "host"),
        ("Optimizer.step#AdamW.step", "host"),
        ("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "host"),
        ("ProfilerStep#3", "host"),
        ("a block of the user's", "other"),
        ("", "other"),
    ],
)
def test_operators_of_torch(name: str, kind: str) -> None:
    assert kind_of(name) == kind


@pytest.mark.parametrize(
    ("name", "core", "kind"),
    [
        ("MatMulV3", "AI_CORE", "compute"),
        ("FlashAttentionScoreGrad", "MIX_AIC", "compute"),
        ("LayerNormGrad", "AI_VECTOR_CORE", "compute"),
        ("some_kernel", "MIX_AIC", "compute"),
        ("EmbeddingDenseBackward", "AI_VECTOR_CORE", "compute"),
        ("Cast", "AI_VECTOR_CORE", "movement"),
        ("Cast", "AI_CPU", "movement"),
        ("Transpose", "AI_VECTOR_CORE", "movement"),
        ("TransData", "", "movement"),
        ("trans_Cast_19", "", "movement"),
        ("GatherV2", "AI_VECTOR_CORE", "movement"),
        ("aclnnInplaceCopy_CastAiCore_Cast", "AI_VECTOR_CORE", "movement"),
        ("aclnnMatmul_MatMulCommon_MatMulV2", "AI_CORE", "compute"),
        ("atomic_memset-1_18_186609_1", "", "movement"),
        ("MemcpyAsync", "", "movement"),
        ("N/A", "MEMCPY_ASYNC", "movement"),
        ("N/A", "EVENT_WAIT", "synchronisation"),
        ("hcom_broadcast__445_0", "HCCL", "communication"),
        ("hcom_allReduce_", "", "communication"),
        ("Broadcast", "HCCL", "communication"),
        ("BroadcastTo", "AI_VECTOR_CORE", "movement"),
        ("AivKernel", "AI_VECTOR_CORE", "communication"),
        ("MatmulAllReduce", "MIX_AIC", "compute"),
        ("hcom_allReduce_", "N/A", "communication"),
        ("Conv2D17", "N/A", "compute"),
        ("ncclDevKernel_AllReduce_Sum", "", "communication"),
        ("Memcpy DtoH (Device -> Pageable)", "", "movement"),
    ],
)
def test_kernels_and_their_cores(name: str, core: str, kind: str) -> None:
    assert kind_of(name, core) == kind


@pytest.mark.parametrize(
    ("name", "level", "kind"),
    [
        ("aclrtSynchronizeStreamWithTimeout", "acl", "synchronisation"),
        ("DeviceSynchronize", "runtime", "synchronisation"),
        ("StreamSyncTaskFinish", "runtime", "synchronisation"),
        ("aclrtStreamWaitEvent", "acl", "host"),
        ("KernelLaunch", "runtime", "host"),
        ("launch", "node", "host"),
        ("DevMalloc", "runtime", "host"),
        ("MemCopySync", "runtime", "movement"),
        ("aclrtMemcpyAsync", "acl", "movement"),
        ("hcom_allReduce_", "node", "communication"),
        ("aclrtSynchronizeStream", "", "synchronisation"),
        ("cudaLaunchKernel", "", "host"),
    ],
)
def test_calls_of_the_api(name: str, level: str, kind: str) -> None:
    assert kind_of(name, level=level) == kind


@pytest.mark.parametrize(
    ("name", "bare"),
    [
        ("trans_Cast_19", "trans_Cast"),
        ("trans_TransData_20", "trans_TransData"),
        ("Cast16", "Cast"),
        ("Conv2D17", "Conv2D"),
        ("MatMulV226", "MatMulV2"),
        ("hcom_broadcast__445_0", "hcom_broadcast_"),
        ("hcom_allReduce__721_0_1", "hcom_allReduce_"),
        ("atomic_memset-1_18_186609_1", "atomic_memset"),
        ("model/layer1/Conv2D_12", "model/layer1/Conv2D"),
        (" Add18 ", "Add"),
    ],
)
def test_a_number_that_only_counts_goes(name: str, bare: str) -> None:
    assert stem(name) == bare
    assert stem(bare) == bare


@pytest.mark.parametrize(
    "name",
    [
        "MatMulV2",
        "Conv2D",
        "GatherV2",
        "aclnnMatmul_MatMulCommon_MatMulV2",
        "Relu6",
        "CastFp16",
        "AddmmBackward0",
        "aten::log2",
        "triton_poi_fused_3",
        "my_kernel_2",
        "hcom_allReduce_",
        "123",
        "_1",
        "",
    ],
)
def test_a_number_that_is_part_of_the_name_stays(name: str) -> None:
    assert stem(name) == name
