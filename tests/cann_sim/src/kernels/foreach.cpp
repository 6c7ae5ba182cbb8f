// The same op for each tensor of a list.
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/pow.h>

#include "op.h"

// Numbers that lie on the device: one for all tensors, or one for each.
struct OnDevice : Tensor {};
template <>
struct Wire<OnDevice> {
    using C = const aclTensor*;
    static OnDevice take(C handle) { return {Wire<Tensor>::take(handle)}; }
};

namespace {

// What a parameter gives to the op at one place of the list.
Tensor element(const Tensors& list, size_t index) { return list.at(index); }
Scalar element(const Scalars& list, size_t index) { return list.at(index); }
Scalar element(const Scalar& for_all, size_t) { return for_all; }
Scalar element(const OnDevice& numbers, size_t index) {
    return numbers.numel() == 1 ? numbers.item() : numbers[static_cast<int64_t>(index)].item();
}

//     foreach<"ForeachAbs", [](Tensor x) { return x.abs(); }, Tensors>()
template <Name name, auto f, class... Lists>
Op foreach () {
    return op<name, [](Lists... lists, Outs outs) {
        for (size_t i = 0; i < outs.size(); ++i) outs[i] = f(element(lists, i)...);
    }>();
}

Tensor plus(Tensor x, Scalar s) { return x.add(s); }
Tensor minus(Tensor x, Scalar s) { return x.sub(s); }
Tensor times(Tensor x, Scalar s) { return x.mul(s); }
Tensor by(Tensor x, Scalar s) { return x.div(s); }
Tensor power(Tensor x, Scalar s) { return x.pow(s); }
Tensor at_least(Tensor x, Scalar s) { return x.clamp_min(s); }
Tensor at_most(Tensor x, Scalar s) { return x.clamp_max(s); }
Tensor plus_list(Tensor x, Tensor y, Scalar alpha) { return x.add(y, alpha); }
Tensor minus_list(Tensor x, Tensor y, Scalar alpha) { return x.sub(y, alpha); }
Tensor addcmul(Tensor x, Tensor a, Tensor b, Scalar s) { return x.addcmul(a, b, s); }
Tensor addcdiv(Tensor x, Tensor a, Tensor b, Scalar s) { return x.addcdiv(a, b, s); }

// The numbers are those of op-plugin.
Tensor rounded(Tensor x, Scalar how) {
    switch (how.toLong()) {
        case 1: return x.round();
        case 2: return x.floor();
        case 3: return x.ceil();
        case 5: return x.trunc();
        case 7: return x.frac();
        default: TORCH_CHECK(false, "rounding ", how, " is not simulated");
    }
}

}  // namespace

std::vector<Op> foreach_ops() {
    return {
        foreach<"ForeachAbs", [](Tensor x) { return x.abs(); }, Tensors>(),
        foreach<"ForeachAcos", [](Tensor x) { return x.acos(); }, Tensors>(),
        foreach<"ForeachAsin", [](Tensor x) { return x.asin(); }, Tensors>(),
        foreach<"ForeachAtan", [](Tensor x) { return x.atan(); }, Tensors>(),
        foreach<"ForeachCos", [](Tensor x) { return x.cos(); }, Tensors>(),
        foreach<"ForeachCosh", [](Tensor x) { return x.cosh(); }, Tensors>(),
        foreach<"ForeachErf", [](Tensor x) { return x.erf(); }, Tensors>(),
        foreach<"ForeachErfc", [](Tensor x) { return x.erfc(); }, Tensors>(),
        foreach<"ForeachExp", [](Tensor x) { return x.exp(); }, Tensors>(),
        foreach<"ForeachExpm1", [](Tensor x) { return x.expm1(); }, Tensors>(),
        foreach<"ForeachLog", [](Tensor x) { return x.log(); }, Tensors>(),
        foreach<"ForeachLog10", [](Tensor x) { return x.log10(); }, Tensors>(),
        foreach<"ForeachLog1p", [](Tensor x) { return x.log1p(); }, Tensors>(),
        foreach<"ForeachLog2", [](Tensor x) { return x.log2(); }, Tensors>(),
        foreach<"ForeachNeg", [](Tensor x) { return x.neg(); }, Tensors>(),
        foreach<"ForeachReciprocal", [](Tensor x) { return x.reciprocal(); }, Tensors>(),
        foreach<"ForeachSigmoid", [](Tensor x) { return x.sigmoid(); }, Tensors>(),
        foreach<"ForeachSign", [](Tensor x) { return x.sign(); }, Tensors>(),
        foreach<"ForeachSin", [](Tensor x) { return x.sin(); }, Tensors>(),
        foreach<"ForeachSinh", [](Tensor x) { return x.sinh(); }, Tensors>(),
        foreach<"ForeachSqrt", [](Tensor x) { return x.sqrt(); }, Tensors>(),
        foreach<"ForeachTan", [](Tensor x) { return x.tan(); }, Tensors>(),
        foreach<"ForeachTanh", [](Tensor x) { return x.tanh(); }, Tensors>(),
        foreach<"ForeachCopy", [](Tensor x) { return x; }, Tensors>(),
        foreach<"ForeachRoundOffNumber", rounded, Tensors, OnDevice>(),
        foreach<"ForeachRoundOffNumberV2", rounded, Tensors, Scalar>(),
        foreach<"ForeachNorm", [](Tensor x, Scalar p) {
            return at::linalg_vector_norm(x, p); }, Tensors, Scalar>(),
        op<"ForeachZeroInplace", [](InOuts list) { for (Tensor& each : list) each.zero_(); }>(),

        foreach<"ForeachAddScalar", plus, Tensors, OnDevice>(),
        foreach<"ForeachAddScalarV2", plus, Tensors, Scalar>(),
        foreach<"ForeachAddScalarList", plus, Tensors, Scalars>(),
        foreach<"ForeachSubScalar", minus, Tensors, OnDevice>(),
        foreach<"ForeachSubScalarV2", minus, Tensors, Scalar>(),
        foreach<"ForeachSubScalarList", minus, Tensors, Scalars>(),
        foreach<"ForeachMulScalar", times, Tensors, OnDevice>(),
        foreach<"ForeachMulScalarV2", times, Tensors, Scalar>(),
        foreach<"ForeachMulScalarList", times, Tensors, Scalars>(),
        foreach<"ForeachDivScalar", by, Tensors, OnDevice>(),
        foreach<"ForeachDivScalarV2", by, Tensors, Scalar>(),
        foreach<"ForeachDivScalarList", by, Tensors, Scalars>(),
        foreach<"ForeachPowScalar", power, Tensors, OnDevice>(),
        foreach<"ForeachPowScalarV2", power, Tensors, Scalar>(),
        foreach<"ForeachPowScalarList", power, Tensors, Scalars>(),
        foreach<"ForeachMaximumScalar", at_least, Tensors, OnDevice>(),
        foreach<"ForeachMaximumScalarV2", at_least, Tensors, Scalar>(),
        foreach<"ForeachMaximumScalarList", at_least, Tensors, Scalars>(),
        foreach<"ForeachMinimumScalar", at_most, Tensors, OnDevice>(),
        foreach<"ForeachMinimumScalarV2", at_most, Tensors, Scalar>(),
        foreach<"ForeachMinimumScalarList", at_most, Tensors, Scalars>(),
        foreach<"ForeachPowScalarAndTensor", [](Scalar s, Tensor x) {
            return at::pow(s, x); }, Scalar, Tensors>(),

        foreach<"ForeachAddList", plus_list, Tensors, Tensors, OnDevice>(),
        foreach<"ForeachAddListV2", plus_list, Tensors, Tensors, Scalar>(),
        foreach<"ForeachSubList", minus_list, Tensors, Tensors, OnDevice>(),
        foreach<"ForeachSubListV2", minus_list, Tensors, Tensors, Scalar>(),
        foreach<"ForeachMulList", [](Tensor x, Tensor y) { return x.mul(y); }, Tensors, Tensors>(),
        foreach<"ForeachDivList", [](Tensor x, Tensor y) { return x.div(y); }, Tensors, Tensors>(),
        foreach<"ForeachPowList", [](Tensor x, Tensor y) { return x.pow(y); }, Tensors, Tensors>(),
        foreach<"ForeachMaximumList", [](Tensor x, Tensor y) { return x.maximum(y); }, Tensors, Tensors>(),
        foreach<"ForeachMinimumList", [](Tensor x, Tensor y) { return x.minimum(y); }, Tensors, Tensors>(),
        foreach<"ForeachLerpList", [](Tensor x, Tensor y, Tensor w) {
            return x.lerp(y, w); }, Tensors, Tensors, Tensors>(),
        foreach<"ForeachLerpScalar", [](Tensor x, Tensor y, Scalar w) {
            return x.lerp(y, w); }, Tensors, Tensors, Scalar>(),

        foreach<"ForeachAddcmulScalar", addcmul, Tensors, Tensors, Tensors, OnDevice>(),
        foreach<"ForeachAddcmulScalarV2", addcmul, Tensors, Tensors, Tensors, Scalar>(),
        foreach<"ForeachAddcmulScalarList", addcmul, Tensors, Tensors, Tensors, OnDevice>(),
        foreach<"ForeachAddcdivScalar", addcdiv, Tensors, Tensors, Tensors, OnDevice>(),
        foreach<"ForeachAddcdivScalarV2", addcdiv, Tensors, Tensors, Tensors, Scalar>(),
        foreach<"ForeachAddcdivScalarList", addcdiv, Tensors, Tensors, Tensors, OnDevice>(),
    };
}
