// One element in, one element out.
#include <ATen/ops/arange.h>
#include <ATen/ops/atan2.h>
#include <ATen/ops/celu.h>
#include <ATen/ops/complex.h>
#include <ATen/ops/fmod.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/isneginf.h>
#include <ATen/ops/isposinf.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/range.h>
#include <ATen/ops/remainder.h>
#include <ATen/ops/rsub.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/xlogy.h>

#include "twins.h"

namespace {

Tensor divide(const Tensor& self, const Tensor& other, int mode) {
    if (mode == 0) return self.div(other);
    return self.div(other, mode == 1 ? "trunc" : "floor");
}
Tensor divide(const Tensor& self, const Scalar& other, int mode) {
    if (mode == 0) return self.div(other);
    return self.div(other, mode == 1 ? "trunc" : "floor");
}

}  // namespace

std::vector<Op> pointwise_ops() {
    return together(
        {
            op<"AddV3", [](Scalar self, Tensor other, Scalar alpha, Out out) {
                out = at::scalar_tensor(self, other.options()).add(other, alpha); }>(),
            op<"Rsub", [](Tensor self, Tensor other, Scalar alpha, Out out) {
                out = at::rsub(self, other, alpha); }>(),
            op<"Rsubs", [](Tensor self, Scalar other, Scalar alpha, Out out) {
                out = at::rsub(self, other, alpha); }>(),
            op<"PowScalarTensor", [](Scalar self, Tensor exponent, Out out) {
                out = at::pow(self, exponent); }>(),
            op<"RemainderScalarTensor", [](Scalar self, Tensor other, Out out) {
                out = at::remainder(self, other); }>(),
            op<"LessScalar", [](Tensor self, Scalar other, Out out) { out = self.lt(other); }>(),
            op<"Maximum", [](Tensor self, Tensor other, Out out) { out = self.maximum(other); }>(),
            op<"Minimum", [](Tensor self, Tensor other, Out out) { out = self.minimum(other); }>(),
            op<"LogicalXor", [](Tensor self, Tensor other, Out out) { out = self.logical_xor(other); }>(),
            op<"BitwiseNot", [](Tensor self, Out out) { out = self.bitwise_not(); }>(),
            op<"BitwiseOrTensor", [](Tensor self, Tensor other, Out out) { out = self.bitwise_or(other); }>(),
            op<"BitwiseOrScalar", [](Tensor self, Scalar other, Out out) { out = self.bitwise_or(other); }>(),
            op<"LogAddExp", [](Tensor self, Tensor other, Out out) { out = self.logaddexp(other); }>(),
            op<"LogAddExp2", [](Tensor self, Tensor other, Out out) { out = self.logaddexp2(other); }>(),
            op<"XLogYTensor", [](Tensor self, Tensor other, Out out) { out = self.xlogy(other); }>(),
            op<"XLogYScalarSelf", [](Scalar self, Tensor other, Out out) { out = at::xlogy(self, other); }>(),
            op<"Sign", [](Tensor self, Out out) { out = self.sign(); }>(),
            op<"Signbit", [](Tensor self, Out out) { out = self.signbit(); }>(),
            op<"Neg", [](Tensor self, Out out) { out = self.neg(); }>(),
            op<"Abs", [](Tensor self, Out out) { out = self.abs(); }>(),
            op<"Round", [](Tensor self, Out out) { out = self.round(); }>(),
            op<"Trunc", [](Tensor self, Out out) { out = self.trunc(); }>(),
            op<"IsFinite", [](Tensor self, Out out) { out = at::isfinite(self); }>(),
            op<"IsNegInf", [](Tensor self, Out out) { out = at::isneginf(self); }>(),
            op<"IsPosInf", [](Tensor self, Out out) { out = at::isposinf(self); }>(),
            op<"IsClose", [](Tensor self, Tensor other, double rtol, double atol, bool equal_nan, Out out) {
                out = self.isclose(other, rtol, atol, equal_nan); }>(),
            op<"SWhere", [](Tensor condition, Tensor self, Tensor other, Out out) {
                out = at::where(condition, self, other); }>(),
            op<"Clamp", [](Tensor self, Scalar low, Scalar high, Out out) { out = self.clamp(low, high); }>(),
            op<"ClampTensor", [](Tensor self, Tensor low, Tensor high, Out out) {
                out = self.clamp(low.defined() ? std::optional(low) : std::nullopt,
                                 high.defined() ? std::optional(high) : std::nullopt); }>(),
            op<"ClampMin", [](Tensor self, Scalar low, Out out) { out = self.clamp_min(low); }>(),
            op<"Complex", [](Tensor real, Tensor imaginary, Out out) {
                out = at::complex(real, imaginary); }>(),

            op<"Cast", [](Tensor self, aclDataType, Out out) { out = self; }>(),
            op<"InplaceCopy", [](InOut self, Tensor source) { self.copy_(source); }>(),
            op<"InplaceZero", [](InOut self) { self.zero_(); }>(),
            op<"InplaceOne", [](InOut self) { self.fill_(1); }>(),
            op<"InplaceFillScalar", [](InOut self, Scalar value) { self.fill_(value); }>(),
            op<"InplaceFillTensor", [](InOut self, Tensor value) { self.fill_(value.reshape({})); }>(),
            op<"InplaceFillDiagonal", [](InOut self, Scalar value, bool wrap) {
                self.fill_diagonal_(value, wrap); }>(),
            op<"InplaceMaskedFillScalar", [](InOut self, Tensor mask, Scalar value) {
                self.masked_fill_(mask.to(at::kBool), value); }>(),
            op<"InplaceMaskedFillTensor", [](InOut self, Tensor mask, Tensor value) {
                self.masked_fill_(mask.to(at::kBool), value.reshape({})); }>(),
            op<"InplaceMaskedScatter", [](InOut self, Tensor mask, Tensor source) {
                self.masked_scatter_(mask.to(at::kBool), source); }>(),
            op<"Arange", [](Scalar start, Scalar end, Scalar step, Out out) {
                out = at::arange(start, end, step, out.place.options()); }>(),
            op<"Range", [](Scalar start, Scalar end, Scalar step, Out out) {
                out = at::range(start, end, step, out.place.options()); }>(),
            op<"Linspace", [](Scalar start, Scalar end, int64_t steps, Out out) {
                out = at::linspace(start, end, steps, out.place.options()); }>(),
        },
        {
            twins<"Add", [](Tensor self, Tensor other, Scalar alpha) { return self.add(other, alpha); }>(),
            twins<"Adds", [](Tensor self, Scalar other, Scalar alpha) { return self.add(other, alpha); }>(),
            twins<"Sub", [](Tensor self, Tensor other, Scalar alpha) { return self.sub(other, alpha); }>(),
            twins<"Subs", [](Tensor self, Scalar other, Scalar alpha) { return self.sub(other, alpha); }>(),
            twins<"Mul", [](Tensor self, Tensor other) { return self.mul(other); }>(),
            twins<"Muls", [](Tensor self, Scalar other) { return self.mul(other); }>(),
            twins<"Div", [](Tensor self, Tensor other) { return self.div(other); }>(),
            twins<"Divs", [](Tensor self, Scalar other) { return self.div(other); }>(),
            twins<"DivMod", [](Tensor self, Tensor other, int mode) { return divide(self, other, mode); }>(),
            twins<"DivMods", [](Tensor self, Scalar other, int mode) { return divide(self, other, mode); }>(),
            twins<"FloorDivide", [](Tensor self, Tensor other) { return self.floor_divide(other); }>(),
            twins<"FloorDivides", [](Tensor self, Scalar other) { return self.floor_divide(other); }>(),
            twins<"RemainderTensorTensor", [](Tensor self, Tensor other) { return self.remainder(other); }>(),
            twins<"RemainderTensorScalar", [](Tensor self, Scalar other) { return self.remainder(other); }>(),
            twins<"FmodTensor", [](Tensor self, Tensor other) { return self.fmod(other); }>(),
            twins<"FmodScalar", [](Tensor self, Scalar other) { return self.fmod(other); }>(),
            twins<"PowTensorTensor", [](Tensor self, Tensor exponent) { return self.pow(exponent); }>(),
            twins<"PowTensorScalar", [](Tensor self, Scalar exponent) { return self.pow(exponent); }>(),
            twins<"Atan2", [](Tensor self, Tensor other) { return self.atan2(other); }>(),
            twins<"XLogYScalarOther", [](Tensor self, Scalar other) { return self.xlogy(other); }>(),
            twins<"Addcmul", [](Tensor self, Tensor a, Tensor b, Scalar value) {
                return self.addcmul(a, b, value); }>(),
            twins<"Addcdiv", [](Tensor self, Tensor a, Tensor b, Scalar value) {
                return self.addcdiv(a, b, value); }>(),
            twins<"Lerp", [](Tensor self, Tensor end, Tensor weight) { return self.lerp(end, weight); }>(),
            twins<"Lerps", [](Tensor self, Tensor end, Scalar weight) { return self.lerp(end, weight); }>(),

            twins<"EqTensor", [](Tensor self, Tensor other) { return self.eq(other); }>(),
            twins<"EqScalar", [](Tensor self, Scalar other) { return self.eq(other); }>(),
            twins<"NeTensor", [](Tensor self, Tensor other) { return self.ne(other); }>(),
            twins<"NeScalar", [](Tensor self, Scalar other) { return self.ne(other); }>(),
            twins<"GtTensor", [](Tensor self, Tensor other) { return self.gt(other); }>(),
            twins<"GtScalar", [](Tensor self, Scalar other) { return self.gt(other); }>(),
            twins<"GeTensor", [](Tensor self, Tensor other) { return self.ge(other); }>(),
            twins<"GeScalar", [](Tensor self, Scalar other) { return self.ge(other); }>(),
            twins<"LtTensor", [](Tensor self, Tensor other) { return self.lt(other); }>(),
            twins<"LtScalar", [](Tensor self, Scalar other) { return self.lt(other); }>(),
            twins<"LeTensor", [](Tensor self, Tensor other) { return self.le(other); }>(),
            twins<"LeScalar", [](Tensor self, Scalar other) { return self.le(other); }>(),
            twins<"LogicalAnd", [](Tensor self, Tensor other) { return self.logical_and(other); }>(),
            twins<"LogicalOr", [](Tensor self, Tensor other) { return self.logical_or(other); }>(),
            twins<"LogicalNot", [](Tensor self) { return self.logical_not(); }>(),
            twins<"BitwiseAndTensor", [](Tensor self, Tensor other) { return self.bitwise_and(other); }>(),
            twins<"BitwiseAndScalar", [](Tensor self, Scalar other) { return self.bitwise_and(other); }>(),
            twins<"BitwiseXorTensor", [](Tensor self, Tensor other) { return self.bitwise_xor(other); }>(),
            twins<"BitwiseXorScalar", [](Tensor self, Scalar other) { return self.bitwise_xor(other); }>(),
            twins<"ClampMax", [](Tensor self, Scalar high) { return self.clamp_max(high); }>(),
            twins<"ClampMinTensor", [](Tensor self, Tensor low) { return self.clamp_min(low); }>(),
            twins<"ClampMaxTensor", [](Tensor self, Tensor high) { return self.clamp_max(high); }>(),
            twins<"NanToNum", [](Tensor self, float nan, float high, float low) {
                return self.nan_to_num(nan, high, low); }>(),

            twins<"Acos", [](Tensor x) { return x.acos(); }>(),
            twins<"Acosh", [](Tensor x) { return x.acosh(); }>(),
            twins<"Asin", [](Tensor x) { return x.asin(); }>(),
            twins<"Asinh", [](Tensor x) { return x.asinh(); }>(),
            twins<"Atan", [](Tensor x) { return x.atan(); }>(),
            twins<"Atanh", [](Tensor x) { return x.atanh(); }>(),
            twins<"Ceil", [](Tensor x) { return x.ceil(); }>(),
            twins<"Cos", [](Tensor x) { return x.cos(); }>(),
            twins<"Cosh", [](Tensor x) { return x.cosh(); }>(),
            twins<"Erf", [](Tensor x) { return x.erf(); }>(),
            twins<"Erfc", [](Tensor x) { return x.erfc(); }>(),
            twins<"Erfinv", [](Tensor x) { return x.erfinv(); }>(),
            twins<"Exp", [](Tensor x) { return x.exp(); }>(),
            twins<"Exp2", [](Tensor x) { return x.exp2(); }>(),
            twins<"Expm1", [](Tensor x) { return x.expm1(); }>(),
            twins<"Floor", [](Tensor x) { return x.floor(); }>(),
            twins<"Frac", [](Tensor x) { return x.frac(); }>(),
            twins<"Log", [](Tensor x) { return x.log(); }>(),
            twins<"Log10", [](Tensor x) { return x.log10(); }>(),
            twins<"Log1p", [](Tensor x) { return x.log1p(); }>(),
            twins<"Log2", [](Tensor x) { return x.log2(); }>(),
            twins<"Reciprocal", [](Tensor x) { return x.reciprocal(); }>(),
            twins<"Rsqrt", [](Tensor x) { return x.rsqrt(); }>(),
            twins<"Sigmoid", [](Tensor x) { return x.sigmoid(); }>(),
            twins<"Sin", [](Tensor x) { return x.sin(); }>(),
            twins<"Sinc", [](Tensor x) { return x.sinc(); }>(),
            twins<"Sinh", [](Tensor x) { return x.sinh(); }>(),
            twins<"Sqrt", [](Tensor x) { return x.sqrt(); }>(),
            twins<"Tan", [](Tensor x) { return x.tan(); }>(),
            twins<"Tanh", [](Tensor x) { return x.tanh(); }>(),
            twins<"RoundDecimals", [](Tensor x, int64_t decimals) { return x.round(decimals); }>(),
        });
}
