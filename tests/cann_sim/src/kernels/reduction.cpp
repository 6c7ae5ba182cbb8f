// Many elements in, fewer out: sums, extremes, statistics, norms; and scans.
#include <ATen/ops/_aminmax.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/norm.h>
#include <ATen/ops/std.h>
#include <ATen/ops/std_mean.h>
#include <ATen/ops/var.h>
#include <ATen/ops/var_mean.h>

#include "op.h"

namespace {

using Dims = at::OptionalIntArrayRef;

// CANN takes no dimensions for all of them; so does ATen's sum, but not its norm.
Dims all_if_none(const Ints& dims) { return dims.empty() ? Dims() : Dims(dims); }

at::ScalarType type_of(const Out& out) { return out.place.scalar_type(); }

Tensor vector_norm(const Tensor& self, const Scalar& order, const Ints& dims, bool keep, const Out& out) {
    const bool same = self.scalar_type() == type_of(out);
    return at::linalg_vector_norm(self, order, all_if_none(dims), keep,
                                  same ? std::nullopt : std::optional(type_of(out)));
}

Tensor all(const Tensor& self, const Ints& dims, bool keep) { return self.all(all_if_none(dims), keep); }
Tensor any(const Tensor& self, const Ints& dims, bool keep) { return self.any(all_if_none(dims), keep); }

}  // namespace

std::vector<Op> reduction_ops() {
    return {
        op<"ReduceSum", [](Tensor self, Ints dims, bool keep, aclDataType, Out out) {
            out = self.sum(Dims(dims), keep, type_of(out)); }>(),
        op<"ReduceNansum", [](Tensor self, Ints dims, bool keep, aclDataType, Out out) {
            out = self.nansum(Dims(dims), keep, type_of(out)); }>(),
        op<"Mean", [](Tensor self, Ints dims, bool keep, aclDataType, Out out) {
            out = self.mean(Dims(dims), keep, type_of(out)); }>(),
        op<"Prod", [](Tensor self, aclDataType, Out out) { out = self.prod(type_of(out)); }>(),
        op<"ProdDim", [](Tensor self, int64_t dim, bool keep, aclDataType, Out out) {
            out = self.prod(dim, keep, type_of(out)); }>(),
        op<"LogSumExp", [](Tensor self, Ints dims, bool keep, Out out) {
            out = self.logsumexp(dims, keep); }>(),
        op<"Trace", [](Tensor self, Out out) { out = self.trace(); }>(),

        op<"VarCorrection", [](Tensor self, Ints dims, int64_t correction, bool keep, Out out) {
            out = self.var(all_if_none(dims), Scalar(correction), keep); }>(),
        op<"VarMean", [](Tensor self, Ints dims, int64_t correction, bool keep, Out var, Out mean) {
            put(at::var_mean(self, all_if_none(dims), Scalar(correction), keep), var, mean); }>(),
        op<"Std", [](Tensor self, Ints dims, int64_t correction, bool keep, Out out) {
            out = self.std(all_if_none(dims), Scalar(correction), keep); }>(),
        op<"StdMeanCorrection", [](Tensor self, Ints dims, int64_t correction, bool keep, Out std, Out mean) {
            put(at::std_mean(self, all_if_none(dims), Scalar(correction), keep), std, mean); }>(),
        op<"Norm", [](Tensor self, Scalar p, Ints dims, bool keep, Out out) {
            out = at::norm(self, std::optional(p), dims, keep); }>(),
        op<"LinalgVectorNorm", [](Tensor self, Scalar order, Ints dims, bool keep, aclDataType, Out out) {
            out = vector_norm(self, order, dims, keep, out); }>(),

        op<"All", [](Tensor self, Ints dims, bool keep, Out out) { out = all(self, dims, keep); }>(),
        op<"Any", [](Tensor self, Ints dims, bool keep, Out out) { out = any(self, dims, keep); }>(),
        op<"Equal", [](Tensor self, Tensor other, Out out) {
            out.place.fill_(self.sizes() == other.sizes() && self.equal(other)); }>(),
        op<"Max", [](Tensor self, Out out) { out = self.max(); }>(),
        op<"Min", [](Tensor self, Out out) { out = self.min(); }>(),
        op<"MaxDim", [](Tensor self, int64_t dim, bool keep, Out values, Out indices) {
            put(self.max(dim, keep), values, indices); }>(),
        op<"MinDim", [](Tensor self, int64_t dim, bool keep, Out values, Out indices) {
            put(self.min(dim, keep), values, indices); }>(),
        op<"Amax", [](Tensor self, Ints dims, bool keep, Out out) { out = self.amax(dims, keep); }>(),
        op<"Amin", [](Tensor self, Ints dims, bool keep, Out out) { out = self.amin(dims, keep); }>(),
        op<"Aminmax", [](Tensor self, Ints dims, bool keep, Out low, Out high) {
            low = self.amin(dims, keep);
            high = self.amax(dims, keep); }>(),
        op<"AminmaxAll", [](Tensor self, Out low, Out high) { put(at::_aminmax(self), low, high); }>(),
        op<"AminmaxDim", [](Tensor self, int64_t dim, bool keep, Out low, Out high) {
            put(at::_aminmax(self, dim, keep), low, high); }>(),
        op<"ArgMax", [](Tensor self, int64_t dim, bool keep, Out out) { out = self.argmax(dim, keep); }>(),
        op<"ArgMin", [](Tensor self, int64_t dim, bool keep, Out out) { out = self.argmin(dim, keep); }>(),
        op<"Median", [](Tensor self, Out out) { out = self.median(); }>(),
        op<"MedianDim", [](Tensor self, int64_t dim, bool keep, Out values, Out indices) {
            put(self.median(dim, keep), values, indices); }>(),
        op<"Kthvalue", [](Tensor self, int64_t k, int64_t dim, bool keep, Out values, Out indices) {
            put(self.kthvalue(k, dim, keep), values, indices); }>(),

        op<"Cumsum", [](Tensor self, int64_t dim, aclDataType, Out out) {
            out = self.cumsum(dim, type_of(out)); }>(),
        op<"Cumprod", [](Tensor self, Scalar dim, aclDataType, Out out) {
            out = self.cumprod(dim.toLong(), type_of(out)); }>(),
        op<"Cummax", [](Tensor self, int64_t dim, Out values, Out indices) {
            put(self.cummax(dim), values, indices); }>(),
        op<"Cummin", [](Tensor self, int64_t dim, Out values, Out indices) {
            put(self.cummin(dim), values, indices); }>(),
        op<"Histc", [](Tensor self, int64_t bins, Scalar low, Scalar high, Out out) {
            out = self.histc(bins, low, high); }>(),
        op<"Bincount", [](Tensor self, Tensor weights, int64_t at_least, Out out) {
            out = self.bincount(maybe(weights), at_least); }>(),
    };
}
