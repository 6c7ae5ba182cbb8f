// How an op of CANN is written here: a name, and a function of ATen types with the parameters of the C one.
//
//     op<"Add", [](Tensor self, Tensor other, Scalar alpha, Out out) { out = self.add(other, alpha); }>()
//
// makes aclnnAddGetWorkspaceSize(const aclTensor*, const aclTensor*, const aclScalar*, aclTensor*, uint64_t*,
// aclOpExecutor**) and aclnnAdd(void*, uint64_t, aclOpExecutor*, aclrtStream).  The list of parameters is
// what op-plugin passes to EXEC_NPU_CMD(aclnnAdd, …), each with the C type below; the order and the widths
// have to be right, since nothing checks them at run time.
#pragma once
#define AT_PER_OPERATOR_HEADERS  // or the next line brings in every op there is
#include <ATen/TensorOperators.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>

#include "handles.h"
#include "sim.h"

using at::Tensor;
using c10::Scalar;
using Ints = std::vector<int64_t>;
using Bools = std::vector<bool>;
using Floats = std::vector<float>;
using Tensors = std::vector<Tensor>;
using Scalars = std::vector<Scalar>;
using Text = std::string;

// A result: assigning copies it to its place.  One that the caller does not want (a null pointer) is dropped.
struct Out {
    Tensor place;
    void operator=(const Tensor& value) const;
};
struct Outs {
    Tensors places;
    Out operator[](size_t index) const { return {places.at(index)}; }
    size_t size() const { return places.size(); }
};
// A tensor that the op changes where it lies.
struct InOut : Tensor {};
struct InOuts : Tensors {};
// A result whose shape depends on the data (Nonzero): assigning sets the shape that aclGetViewShape tells.
struct Sized {
    Tensor place;
    std::shared_ptr<Ints> shape;
    void operator=(const Tensor& value) const;
};

// How a parameter of type T crosses the C interface; by value unless it is said otherwise here.
template <class T>
struct Wire {
    using C = T;
    static T take(C value) { return value; }
};
template <>
struct Wire<Tensor> {
    using C = const aclTensor*;
    static Tensor take(C handle) { return handle ? handle->tensor : Tensor(); }
};
template <>
struct Wire<InOut> {
    using C = const aclTensor*;
    static InOut take(C handle) { return {Wire<Tensor>::take(handle)}; }
};
template <>
struct Wire<Out> {
    using C = const aclTensor*;
    static Out take(C handle) { return {Wire<Tensor>::take(handle)}; }
};
template <>
struct Wire<Sized> {
    using C = aclTensor*;
    static Sized take(C handle) {
        if (!handle) return {};
        handle->shape = std::make_shared<Ints>(handle->tensor.sizes().vec());
        return {handle->tensor, handle->shape};
    }
};
template <>
struct Wire<Scalar> {
    using C = const aclScalar*;
    static Scalar take(C handle) { return handle ? handle->scalar : Scalar(0.0); }
};
template <>
struct Wire<Ints> {
    using C = const aclIntArray*;
    static Ints take(C handle) { return handle ? handle->values : Ints(); }
};
template <>
struct Wire<Bools> {
    using C = const aclBoolArray*;
    static Bools take(C handle) { return handle ? handle->values : Bools(); }
};
template <>
struct Wire<Floats> {
    using C = const aclFloatArray*;
    static Floats take(C handle) { return handle ? handle->values : Floats(); }
};
template <>
struct Wire<Text> {
    using C = const char*;
    static Text take(C text) { return text ? text : ""; }
};
template <>
struct Wire<Tensors> {
    using C = const aclTensorList*;
    static Tensors take(C handle);
};
template <>
struct Wire<InOuts> {
    using C = const aclTensorList*;
    static InOuts take(C handle) { return {Wire<Tensors>::take(handle)}; }
};
template <>
struct Wire<Outs> {
    using C = const aclTensorList*;
    static Outs take(C handle) { return {Wire<Tensors>::take(handle)}; }
};
template <>
struct Wire<Scalars> {
    using C = const aclScalarList*;
    static Scalars take(C handle);
};

// What saturation has to look at: what an op reads and what it writes.
void note(aclOpExecutor& executor, const Tensor& input);
void note(aclOpExecutor& executor, const Tensors& inputs);
void note(aclOpExecutor& executor, const Out& output);
void note(aclOpExecutor& executor, const Outs& outputs);
void note(aclOpExecutor& executor, const InOut& both);
void note(aclOpExecutor& executor, const InOuts& both);
template <class T>
void note(aclOpExecutor&, const T&) {}

template <std::size_t N>
struct Name {
    char text[N];
    constexpr Name(const char (&given)[N]) { std::copy_n(given, N, text); }
};

int prepare(std::unique_ptr<aclOpExecutor> made, uint64_t* workspace_size, aclOpExecutor** executor);

// One of these for each list of parameters, not for each op: it is what the compiler spends its time on.
template <class... Parameters>
int bind(const char* name, void (*kernel)(Parameters...), typename Wire<Parameters>::C... handles,
         uint64_t* workspace_size, aclOpExecutor** executor) {
    auto made = std::make_unique<aclOpExecutor>();
    made->op = std::string("aclnn") + name;
    const auto keep = [&](const Parameters&... taken) {
        (note(*made, taken), ...);
        made->run = [kernel, taken...] { kernel(taken...); };
    };
    keep(Wire<Parameters>::take(handles)...);
    return prepare(std::move(made), workspace_size, executor);
}

template <Name name, auto kernel, class... Parameters>
int get_workspace_size(typename Wire<Parameters>::C... handles, uint64_t* workspace_size,
                       aclOpExecutor** executor) {
    return bind<Parameters...>(name.text, kernel, handles..., workspace_size, executor);
}

// One line of the table: the name without aclnn, and where its GetWorkspaceSize starts.
struct Op {
    const char* name;
    void* get_workspace_size;
};

template <Name name, auto kernel, class... Parameters>
Op op_of(void (*)(Parameters...)) {
    return {name.text, reinterpret_cast<void*>(&get_workspace_size<name, kernel, Parameters...>)};
}
template <Name name, auto kernel>
Op op() {
    return op_of<name, kernel>(+kernel);
}

// For kernels: what ATen takes for a tensor that may be left out, and several results, each to its place.
inline std::optional<Tensor> maybe(const Tensor& tensor) {
    return tensor.defined() ? std::optional(tensor) : std::nullopt;
}
template <class... Values, class... Places>
void put(const std::tuple<Values...>& values, const Places&... places) {
    std::apply([&](const auto&... each) { ((places = each), ...); }, values);
}

// The table, by family: one file each, one line an op.
std::vector<Op> pointwise_ops();
std::vector<Op> reduction_ops();
std::vector<Op> indexing_ops();
std::vector<Op> linear_ops();
std::vector<Op> neural_ops();
std::vector<Op> loss_ops();
std::vector<Op> spatial_ops();
std::vector<Op> attention_ops();
std::vector<Op> random_ops();
std::vector<Op> foreach_ops();
std::vector<Op> optimizer_ops();
