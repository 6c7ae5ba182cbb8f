// Where elements lie: taking, putting, joining, cutting, ordering, finding.
#include <ATen/ops/_unique.h>
#include <ATen/ops/_unique2.h>
#include <ATen/ops/bucketize.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/index.h>
#include <ATen/ops/index_put.h>
#include <ATen/ops/one_hot.h>
#include <ATen/ops/repeat_interleave.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/unfold_backward.h>
#include <ATen/ops/unique_consecutive.h>
#include <ATen/ops/unique_dim.h>
#include <ATen/ops/where.h>

#include "twins.h"

namespace {

using Indices = c10::List<std::optional<Tensor>>;

// For a dimension that is not indexed op-plugin sends an empty tensor of the type of self.  With a self of
// int64 it cannot be told from an index without elements, neither here nor, it seems, on a device.
Indices indices_of(const Tensors& given, at::ScalarType self) {
    Indices indices;
    for (const Tensor& each : given) {
        const bool none =
            !each.defined() || (each.dim() == 1 && each.numel() == 0 && each.scalar_type() == self);
        indices.push_back(none ? std::nullopt : std::optional(each));
    }
    return indices;
}

Tensor take_out(const Tensor& self, const Tensors& indices, const Out& out) {
    return out.place.numel() == 0 ? out.place : at::index(self, indices_of(indices, self.scalar_type()));
}

Tensor scatter(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source, int64_t reduce) {
    if (reduce == 0) return self.scatter(dim, index, source);
    return self.scatter(dim, index, source, reduce == 1 ? "add" : "multiply");
}
Tensor scatter(const Tensor& self, int64_t dim, const Tensor& index, const Scalar& value, int64_t reduce) {
    if (reduce == 0) return self.scatter(dim, index, value);
    return self.scatter(dim, index, value, reduce == 1 ? "add" : "multiply");
}

// The numbers are those of ScatterReduceType in op-plugin.
Tensor scatter_reduce(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source,
                      int64_t reduce, bool include_self) {
    constexpr const char* NAMES[] = {"", "sum", "prod", "amax", "amin", "mean"};
    TORCH_CHECK(reduce > 0 && reduce < 6, "reduction ", reduce, " is not simulated");
    return self.scatter_reduce(dim, index, source, NAMES[reduce], include_self);
}

void split(const Tensor& self, const Ints& sizes, int64_t dim, const Outs& outs) {
    const Tensors pieces = self.split_with_sizes(sizes, dim);
    for (size_t i = 0; i < pieces.size(); ++i) outs[i] = pieces[i];
}

void unique2(const Tensor& self, bool sorted, bool want_inverse, bool want_counts, const Sized& values,
             const Out& inverse, const Sized& counts) {
    const auto [found, where, how_many] = at::_unique2(self, sorted, want_inverse, want_counts);
    values = found;
    if (want_inverse) inverse = where;
    if (want_counts) counts = how_many;
}

constexpr int64_t NO_DIM = 1000;  // as op-plugin says "none" to aclnnUniqueConsecutive

void unique_consecutive(const Tensor& self, bool want_inverse, bool want_counts, int64_t dim,
                        const Sized& values, const Out& inverse, const Sized& counts) {
    const auto [found, where, how_many] = at::unique_consecutive(
        self, want_inverse, want_counts, dim == NO_DIM ? std::nullopt : std::optional(dim));
    values = found;
    if (want_inverse) inverse = where;
    if (want_counts) counts = how_many;
}

void unique_dim(const Tensor& self, bool sorted, bool want_inverse, int64_t dim, const Sized& values,
                const Out& inverse, const Sized& counts) {
    const auto [found, where, how_many] = at::unique_dim(self, dim, sorted, want_inverse, true);
    values = found;
    if (want_inverse) inverse = where;
    counts = how_many;
}

}  // namespace

std::vector<Op> indexing_ops() {
    return together(
        {
            op<"Index", [](Tensor self, Tensors indices, Out out) { out = take_out(self, indices, out); }>(),
            op<"IndexPutImpl", [](InOut self, Tensors indices, Tensor values, bool accumulate, bool) {
                self.index_put_(indices_of(indices, self.scalar_type()), values, accumulate); }>(),
            op<"IndexSelect", [](Tensor self, int64_t dim, Tensor index, Out out) {
                out = self.index_select(dim, index); }>(),
            op<"IndexAdd", [](Tensor self, int64_t dim, Tensor index, Tensor source, Scalar alpha, Out out) {
                out = self.index_add(dim, index, source, alpha); }>(),
            op<"IndexAddV2", [](Tensor self, int64_t dim, Tensor index, Tensor source, Scalar alpha, int64_t,
                                Out out) {
                out = self.index_add(dim, index, source, alpha); }>(),
            op<"Gather", [](Tensor self, int64_t dim, Tensor index, Out out) {
                out = self.gather(dim, index); }>(),
            op<"Take", [](Tensor self, Tensor index, Out out) { out = self.take(index); }>(),
            op<"InplacePut", [](InOut self, Tensor index, Tensor source, bool accumulate) {
                self.put_(index, source, accumulate); }>(),
            op<"ScatterAdd", [](Tensor self, int64_t dim, Tensor index, Tensor source, Out out) {
                out = self.scatter_add(dim, index, source); }>(),
            op<"MaskedSelect", [](Tensor self, Tensor mask, Sized out) {
                out = self.masked_select(mask.to(at::kBool)); }>(),
            op<"Nonzero", [](Tensor self, Sized out) { out = self.nonzero(); }>(),
            op<"NonzeroV2", [](Tensor self, Sized out) { out = self.nonzero().t(); }>(),
            op<"Unique", [](Tensor self, bool sorted, bool want_inverse, Sized values, Out inverse) {
                unique2(self, sorted, want_inverse, false, values, inverse, {}); }>(),
            op<"Unique2", [](Tensor self, bool sorted, bool want_inverse, bool want_counts, Sized values,
                             Out inverse, Sized counts) {
                unique2(self, sorted, want_inverse, want_counts, values, inverse, counts); }>(),
            op<"UniqueConsecutive", [](Tensor self, bool want_inverse, bool want_counts, int64_t dim,
                                       Sized values, Out inverse, Sized counts) {
                unique_consecutive(self, want_inverse, want_counts, dim, values, inverse, counts); }>(),
            op<"UniqueDim", [](Tensor self, bool sorted, bool want_inverse, int64_t dim, Sized values,
                               Out inverse, Sized counts) {
                unique_dim(self, sorted, want_inverse, dim, values, inverse, counts); }>(),

            op<"Cat", [](Tensors tensors, int64_t dim, Out out) { out = at::cat(tensors, dim); }>(),
            op<"Stack", [](Tensors tensors, int64_t dim, Out out) { out = at::stack(tensors, dim); }>(),
            op<"SplitWithSize", [](Tensor self, Ints sizes, int64_t dim, Outs outs) {
                split(self, sizes, dim, outs); }>(),
            op<"Repeat", [](Tensor self, Ints repeats, Out out) { out = self.repeat(repeats); }>(),
            op<"RepeatInterleave", [](Tensor self, Tensor repeats, int64_t, Out out) {
                out = self.repeat_interleave(repeats); }>(),
            op<"RepeatInterleaveWithDim", [](Tensor self, Tensor repeats, int64_t dim, int64_t, Out out) {
                out = self.repeat_interleave(repeats, dim); }>(),
            op<"RepeatInterleaveInt", [](Tensor self, int64_t repeats, int64_t, Out out) {
                out = self.repeat_interleave(repeats); }>(),
            op<"RepeatInterleaveIntWithDim", [](Tensor self, int64_t repeats, int64_t dim, int64_t, Out out) {
                out = self.repeat_interleave(repeats, dim); }>(),
            op<"RepeatInterleaveTensor", [](Tensor repeats, int64_t, Out out) {
                out = at::repeat_interleave(repeats); }>(),
            op<"Flip", [](Tensor self, Ints dims, Out out) { out = self.flip(dims); }>(),
            op<"Roll", [](Tensor self, Ints shifts, Ints dims, Out out) { out = self.roll(shifts, dims); }>(),
            op<"ConstantPadNd", [](Tensor self, Ints pad, Scalar value, Out out) {
                out = at::constant_pad_nd(self, pad, value); }>(),
            op<"UnfoldGrad", [](Tensor grad, Ints sizes, int64_t dim, int64_t size, int64_t step, Out out) {
                out = at::unfold_backward(grad, sizes, dim, size, step); }>(),
            op<"OneHot", [](Tensor self, int classes, Tensor on, Tensor off, int64_t, Out out) {
                out = at::where(at::one_hot(self.to(at::kLong), classes).to(at::kBool), on, off); }>(),
            op<"Eye", [](int64_t rows, int64_t columns, Out out) {
                out = at::eye(rows, columns, out.place.options()); }>(),

            op<"Topk", [](Tensor self, int64_t k, int64_t dim, bool largest, bool sorted, Out values,
                          Out indices) {
                put(self.topk(k, dim, largest, sorted), values, indices); }>(),
            op<"TopkV2", [](Tensor self, int64_t k, int64_t dim, bool largest, bool sorted, int64_t,
                            Out values, Out indices) {
                put(self.topk(k, dim, largest, sorted), values, indices); }>(),
            op<"Sort", [](Tensor self, bool stable, int64_t dim, bool descending, Out values, Out indices) {
                put(self.sort(std::optional(stable), dim, descending), values, indices); }>(),
            op<"SearchSorted", [](Tensor sequence, Tensor self, bool as_int32, bool right, Tensor sorter,
                                  Out out) {
                out = at::searchsorted(sequence, self, as_int32, right, std::nullopt, maybe(sorter)); }>(),
            op<"SearchSorteds", [](Tensor sequence, Scalar self, bool as_int32, bool right, Tensor sorter,
                                   Out out) {
                out = at::searchsorted(sequence, self, as_int32, right, std::nullopt, maybe(sorter)); }>(),
            op<"Bucketize", [](Tensor self, Tensor boundaries, bool as_int32, bool right, Out out) {
                out = at::bucketize(self, boundaries, as_int32, right); }>(),
        },
        {
            twins<"Tril", [](Tensor self, int64_t diagonal) { return self.tril(diagonal); }>(),
            twins<"Triu", [](Tensor self, int64_t diagonal) { return self.triu(diagonal); }>(),
            twins<"IndexCopy", [](Tensor self, int64_t dim, Tensor index, Tensor source) {
                return self.index_copy(dim, index, source); }>(),
            twins<"IndexFill", [](Tensor self, int64_t dim, Tensor index, Scalar value) {
                return self.index_fill(dim, index.to(at::kLong), value); }>(),
            twins<"IndexFillTensor", [](Tensor self, int64_t dim, Ints index, Scalar value) {
                return self.index_fill(dim, at::tensor(index), value); }>(),
            twins<"Scatter", [](Tensor self, int64_t dim, Tensor index, Tensor source, int64_t reduce) {
                return scatter(self, dim, index, source, reduce); }>(),
            twins<"ScatterValue", [](Tensor self, int64_t dim, Tensor index, Scalar value, int64_t reduce) {
                return scatter(self, dim, index, value, reduce); }>(),
            twins<"ScatterReduce", [](Tensor self, int64_t dim, Tensor index, Tensor source, int64_t reduce,
                                      bool include_self) {
                return scatter_reduce(self, dim, index, source, reduce, include_self); }>(),
        });
}
