// From aclnnXGetWorkspaceSize to the kernel that runs on its stream: how an op is found, prepared, launched
// and run.
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/isfinite.h>
#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <unordered_map>

#include "op.h"

// ---- what parameters do

void Out::operator=(const Tensor& value) const {
    if (!place.defined()) return;
    place.copy_(value.numel() == place.numel() ? value.reshape(place.sizes()) : value);
}

void Sized::operator=(const Tensor& value) const {
    if (!shape) return;
    place.as_strided({value.numel()}, {1}).copy_(value.reshape({-1}));
    *shape = value.sizes().vec();
}

Tensors Wire<Tensors>::take(C handle) {
    Tensors tensors;
    if (handle) {
        for (const aclTensor* each : handle->values) tensors.push_back(Wire<Tensor>::take(each));
    }
    return tensors;
}

Scalars Wire<Scalars>::take(C handle) {
    Scalars scalars;
    if (handle) {
        for (const aclScalar* each : handle->values) scalars.push_back(Wire<Scalar>::take(each));
    }
    return scalars;
}

void note(aclOpExecutor& executor, const Tensor& input) { executor.inputs.push_back(input); }
void note(aclOpExecutor& executor, const Tensors& inputs) {
    executor.inputs.insert(executor.inputs.end(), inputs.begin(), inputs.end());
}
void note(aclOpExecutor& executor, const Out& output) { executor.outputs.push_back(output.place); }
void note(aclOpExecutor& executor, const Outs& outputs) {
    executor.outputs.insert(executor.outputs.end(), outputs.places.begin(), outputs.places.end());
}
void note(aclOpExecutor& executor, const InOut& both) {
    note(executor, static_cast<const Tensor&>(both));
    note(executor, Out{both});
}
void note(aclOpExecutor& executor, const InOuts& both) {
    note(executor, static_cast<const Tensors&>(both));
    note(executor, Outs{both});
}

// ---- running

namespace {

bool is_finite(const Tensor& tensor) {
    return !tensor.defined() || !tensor.is_floating_point() || tensor.numel() == 0 ||
           at::isfinite(tensor).all().item<bool>();
}

// Saturation is looked for in one place, after each op.  An infinity that was put in on purpose is no
// overflow: a fill, or what comes of inputs that held one already, as masked attention scores do.  Otherwise
// each step of a transformer would set the register, and a GradScaler would shrink its scale for ever.  What
// a device does with these: unknown.
bool may_overflow(const aclOpExecutor& op) {
    return sim::saturates() && op.op.find("Fill") == std::string::npos &&
           std::all_of(op.inputs.begin(), op.inputs.end(), is_finite);
}

void saturate(const Tensors& outputs, int device) {
    for (const Tensor& output : outputs) {
        if (is_finite(output)) continue;
        sim::set_overflow(device);
        Tensor(output).nan_to_num_(0.0);  // infinities become the largest finite value of the type
    }
}

// Numbers must not depend on how many threads shared the work.  The setting is the thread's own, once OpenMP
// has its pool; but torch also keeps it as the default of threads that have not computed yet, the training's
// own included.
void compute_alone() {
    thread_local bool alone = false;
    if (alone) return;
    at::get_num_threads();  // the thread takes over the default here, which would undo the next line later
    at::set_num_threads(1);
    alone = true;
}

// On a device that is an exception of its core: it is dead, and the next wait tells.
void fail(const aclOpExecutor& op, int device, int stream, const char* why) {
    const std::string text = op.op + " failed: " + why;
    std::fprintf(stderr, "[cann_sim] %s\n", text.c_str());
    sim::plog(sim::Level::ERROR, "CANN_SIM", "launch.cpp", __LINE__, text);
    sim::fail_device(device, 507015, op.op, stream);  // aicore exception
}

void run(const aclOpExecutor& op, int device, int stream) {
    compute_alone();
    c10::impl::ExcludeDispatchKeyGuard no_autograd(c10::autograd_dispatch_keyset_with_ADInplaceOrView);
    c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    at::NoGradGuard no_grad;
    at::DisableRecordFunctionGuard unseen;  // a profiler of the host must not see what stands for the device
    try {
        const bool watched = may_overflow(op);
        op.run();
        if (watched) saturate(op.outputs, device);
    } catch (const c10::Error& error) {
        fail(op, device, stream, error.what_without_backtrace());
    } catch (const std::exception& error) {
        fail(op, device, stream, error.what());
    }
}

// aclnnX of every op: the executor alone knows which one it is.
int launch(void*, uint64_t, aclOpExecutor* handle, aclrtStream on) {
    const std::shared_ptr<const aclOpExecutor> op(handle);
    if (const int code = sim::on_launch(op->op)) return code;
    sim::Stream* stream = sim::stream_of(on);
    const int device = sim::device_of(stream);
    const int id = sim::id_of(stream);
    sim::push(stream, {op->op, [op, device, id] { run(*op, device, id); }, true});
    return ACL_SUCCESS;
}

std::unordered_map<std::string, void*> table_of_all() {
    std::unordered_map<std::string, void*> table;
    for (const auto family : {pointwise_ops, reduction_ops, indexing_ops, linear_ops, neural_ops, loss_ops,
                              spatial_ops, attention_ops, random_ops, foreach_ops, optimizer_ops}) {
        for (const Op& op : family()) {
            table[std::string("aclnn") + op.name] = reinterpret_cast<void*>(&launch);
            table[std::string("aclnn") + op.name + "GetWorkspaceSize"] = op.get_workspace_size;
        }
    }
    return table;
}

constexpr int NOT_SIMULATED = 561103;  // of CANN's inner errors the one that means: no such kernel
constexpr int BAD_PARAMETER = 161002;

}  // namespace

int prepare(std::unique_ptr<aclOpExecutor> made, uint64_t* workspace_size, aclOpExecutor** executor) {
    if (const std::string why = take_refusal(); !why.empty()) {
        std::fprintf(stderr, "%s (%s)\n", why.c_str(), made->op.c_str());
        sim::set_recent_error("EZ1001: " + why + " (" + made->op + ")");
        return BAD_PARAMETER;
    }
    if (const int code = sim::on_prepare(made->op)) return code;
    *workspace_size = 0;
    *executor = made.release();
    return ACL_SUCCESS;
}

// ---- how torch_npu finds an op

extern "C" void* sim_find_op(const char* name) {
    static const auto table = table_of_all();
    const auto found = table.find(name);
    return found == table.end() ? nullptr : found->second;
}

extern "C" int sim_missing_op(const char* name) {
    std::string op(name);
    if (const auto end = op.rfind("GetWorkspaceSize"); end != std::string::npos) op.resize(end);
    take_refusal();  // it was of this op's arguments
    const std::string text = "[cann_sim] op " + op + " is not simulated";
    std::fprintf(stderr, "%s\n", text.c_str());
    sim::set_recent_error("EZ9903: " + text);
    return NOT_SIMULATED;
}
