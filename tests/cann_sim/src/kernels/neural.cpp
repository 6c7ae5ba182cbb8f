// Layers that keep the shape: activations, softmax, normalisation; and embeddings.
#include <ATen/ops/_log_softmax_backward_data.h>
#include <ATen/ops/_prelu_kernel.h>
#include <ATen/ops/_prelu_kernel_backward.h>
#include <ATen/ops/_softmax_backward_data.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/celu.h>
#include <ATen/ops/elu.h>
#include <ATen/ops/elu_backward.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/embedding_dense_backward.h>
#include <ATen/ops/embedding_renorm.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/glu.h>
#include <ATen/ops/glu_backward.h>
#include <ATen/ops/hardshrink_backward.h>
#include <ATen/ops/hardsigmoid.h>
#include <ATen/ops/hardsigmoid_backward.h>
#include <ATen/ops/hardswish.h>
#include <ATen/ops/hardswish_backward.h>
#include <ATen/ops/hardtanh.h>
#include <ATen/ops/hardtanh_backward.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/leaky_relu_backward.h>
#include <ATen/ops/log_sigmoid_backward.h>
#include <ATen/ops/log_sigmoid_forward.h>
#include <ATen/ops/mish.h>
#include <ATen/ops/mish_backward.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/native_batch_norm_backward.h>
#include <ATen/ops/native_group_norm.h>
#include <ATen/ops/native_group_norm_backward.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/sigmoid_backward.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/softplus_backward.h>
#include <ATen/ops/softshrink.h>
#include <ATen/ops/softshrink_backward.h>
#include <ATen/ops/tanh_backward.h>
#include <ATen/ops/threshold.h>
#include <ATen/ops/threshold_backward.h>

#include "twins.h"

namespace {

std::array<bool, 3> three(const Bools& wanted) { return {wanted.at(0), wanted.at(1), wanted.at(2)}; }

// torch_npu keeps the statistics in float; ATen's CPU wants them in the type it would have made them in.
Tensor statistic(const Tensor& value, const Tensor& input, const Tensor& weight) {
    const bool mixed = weight.defined() && weight.scalar_type() != input.scalar_type();
    return mixed ? value : value.to(input.scalar_type());
}

void batch_norm(Tensor input, Tensor weight, Tensor bias, InOut mean, InOut var, bool training,
                double momentum, double eps, Out out, Out saved_mean, Out saved_invstd) {
    const auto [normal, batch_mean, batch_invstd] = at::native_batch_norm(
        input, maybe(weight), maybe(bias), maybe(mean), maybe(var), training, momentum, eps);
    out = normal;
    if (training) {
        saved_mean = batch_mean;
        saved_invstd = batch_invstd;
    }
}

// The product over the dimensions that gamma has.
Ints dims_of(const Tensor& gamma) {
    Ints dims;
    for (int64_t i = 1; i <= gamma.dim(); ++i) dims.push_back(-i);
    return dims;
}

void rms_norm(const Tensor& x, const Tensor& gamma, double eps, const Out& out, const Out& rstd) {
    const Tensor wide = x.to(at::kFloat);
    const Tensor scale = wide.pow(2).mean(dims_of(gamma), true).add(eps).rsqrt();
    out = wide * scale * gamma.to(at::kFloat);
    rstd = scale;
}

void rms_norm_backward(const Tensor& grad, const Tensor& x, const Tensor& rstd, const Tensor& gamma,
                       const Out& dx, const Out& dgamma) {
    const Tensor g = grad.to(at::kFloat);
    const Tensor normal = x.to(at::kFloat) * rstd;
    const Tensor scaled = g * gamma.to(at::kFloat);
    dx = rstd * (scaled - normal * (scaled * normal).mean(dims_of(gamma), true));
    dgamma = (g * normal).sum_to_size(gamma.sizes());
}

// The weight comes flat; it belongs to the second dimension of self.
void prelu_backward(const Tensor& grad, const Tensor& self, const Tensor& weight, const Out& dself,
                    const Out& dweight) {
    Ints shape(static_cast<size_t>(self.dim()), 1);
    if (weight.numel() > 1) shape.at(1) = weight.numel();
    const auto [dx, dw] = at::_prelu_kernel_backward(grad, self, weight.reshape(shape));
    dself = dx;
    dweight = dw.sum_to_size(shape);
}

void swiglu_backward(const Tensor& grad, const Tensor& x, int64_t dim, const Out& out) {
    const Tensors halves = x.chunk(2, dim);
    out = at::cat(Tensors{at::silu_backward(grad * halves[1], halves[0]), grad * at::silu(halves[0])}, dim);
}

}  // namespace

std::vector<Op> neural_ops() {
    return together(
        {
            op<"Gelu", [](Tensor self, Out out) { out = at::gelu(self); }>(),
            op<"GeluV2", [](Tensor self, int64_t tanh, Out out) {
                out = at::gelu(self, tanh ? "tanh" : "none"); }>(),
            op<"GeluBackward", [](Tensor grad, Tensor self, Out out) {
                out = at::gelu_backward(grad, self); }>(),
            op<"GeluBackwardV2", [](Tensor grad, Tensor self, Text how, Out out) {
                out = at::gelu_backward(grad, self, how); }>(),
            op<"Silu", [](Tensor self, Out out) { out = at::silu(self); }>(),
            op<"SiluBackward", [](Tensor grad, Tensor self, Out out) {
                out = at::silu_backward(grad, self); }>(),
            op<"SwiGlu", [](Tensor x, int64_t dim, Out out) {
                const Tensors halves = x.chunk(2, dim);
                out = at::silu(halves[0]) * halves[1]; }>(),
            op<"SwiGluGrad", [](Tensor grad, Tensor x, int64_t dim, Out out) {
                swiglu_backward(grad, x, dim, out); }>(),
            op<"Glu", [](Tensor self, int64_t dim, Out out) { out = at::glu(self, dim); }>(),
            op<"GluBackward", [](Tensor grad, Tensor self, int64_t dim, Out out) {
                out = at::glu_backward(grad, self, dim); }>(),
            op<"ThresholdBackward", [](Tensor grad, Tensor self, Scalar threshold, Out out) {
                out = at::threshold_backward(grad, self, threshold); }>(),
            op<"SigmoidBackward", [](Tensor grad, Tensor output, Out out) {
                out = at::sigmoid_backward(grad, output); }>(),
            op<"TanhBackward", [](Tensor grad, Tensor output, Out out) {
                out = at::tanh_backward(grad, output); }>(),
            op<"LeakyReluBackward", [](Tensor grad, Tensor self, Scalar slope, bool is_result, Out out) {
                out = at::leaky_relu_backward(grad, self, slope, is_result); }>(),
            op<"EluBackward", [](Tensor grad, Scalar alpha, Scalar scale, Scalar in, bool is_result,
                                 Tensor self, Out out) {
                out = at::elu_backward(grad, alpha, scale, in, is_result, self); }>(),
            op<"HardtanhBackward", [](Tensor grad, Tensor self, Scalar low, Scalar high, Out out) {
                out = at::hardtanh_backward(grad, self, low, high); }>(),
            op<"HardswishBackward", [](Tensor grad, Tensor self, Out out) {
                out = at::hardswish_backward(grad, self); }>(),
            op<"HardswishBackwardV2", [](Tensor grad, Tensor self, Out out) {
                out = at::hardswish_backward(grad, self); }>(),
            op<"HardsigmoidBackward", [](Tensor grad, Tensor self, Out out) {
                out = at::hardsigmoid_backward(grad, self); }>(),
            op<"MishBackward", [](Tensor grad, Tensor self, Out out) {
                out = at::mish_backward(grad, self); }>(),
            op<"Softplus", [](Tensor self, Scalar beta, Scalar threshold, Out out) {
                out = at::softplus(self, beta, threshold); }>(),
            op<"SoftplusBackward", [](Tensor grad, Tensor self, Scalar beta, Scalar threshold, Out out) {
                out = at::softplus_backward(grad, self, beta, threshold); }>(),
            op<"Softshrink", [](Tensor self, Scalar lambda, Out out) {
                out = at::softshrink(self, lambda); }>(),
            op<"SoftshrinkBackward", [](Tensor grad, Tensor self, Scalar lambda, Out out) {
                out = at::softshrink_backward(grad, self, lambda); }>(),
            op<"Hardshrink", [](Tensor self, Scalar lambda, Out out) { out = self.hardshrink(lambda); }>(),
            op<"HardshrinkBackward", [](Tensor grad, Tensor self, Scalar lambda, Out out) {
                out = at::hardshrink_backward(grad, self, lambda); }>(),
            op<"LogSigmoidForward", [](Tensor self, Out out, Out) {
                out = std::get<0>(at::log_sigmoid_forward(self)); }>(),
            op<"LogSigmoidBackward", [](Tensor grad, Tensor self, Tensor, Out out) {
                out = at::log_sigmoid_backward(grad, self, std::get<1>(at::log_sigmoid_forward(self))); }>(),
            op<"Prelu", [](Tensor self, Tensor weight, Out out) { out = at::_prelu_kernel(self, weight); }>(),
            op<"PreluBackward", [](Tensor grad, Tensor self, Tensor weight, Out dself, Out dweight) {
                prelu_backward(grad, self, weight, dself, dweight); }>(),

            op<"Softmax", [](Tensor self, int64_t dim, Out out) { out = self.softmax(dim); }>(),
            op<"SoftmaxBackward", [](Tensor grad, Tensor output, int64_t dim, Out out) {
                out = at::_softmax_backward_data(grad, output, dim, grad.scalar_type()); }>(),
            op<"LogSoftmax", [](Tensor self, int64_t dim, Out out) {
                out = self.to(out.place.scalar_type()).log_softmax(dim); }>(),
            op<"LogSoftmaxBackward", [](Tensor grad, Tensor output, int64_t dim, Out out) {
                out = at::_log_softmax_backward_data(grad, output, dim, grad.scalar_type()); }>(),

            op<"LayerNorm", [](Tensor input, Ints shape, Tensor weight, Tensor bias, double eps, Out out,
                               Out mean, Out rstd) {
                put(at::native_layer_norm(input, shape, maybe(weight), maybe(bias), eps), out, mean,
                    rstd); }>(),
            op<"FastLayerNorm", [](Tensor input, Ints shape, Tensor weight, Tensor bias, double eps, Out out,
                                   Out mean, Out rstd) {
                put(at::native_layer_norm(input, shape, maybe(weight), maybe(bias), eps), out, mean,
                    rstd); }>(),
            op<"LayerNormBackward", [](Tensor grad, Tensor input, Ints shape, Tensor mean, Tensor rstd,
                                       Tensor weight, Tensor bias, Bools wanted, Out dinput, Out dweight,
                                       Out dbias) {
                put(at::native_layer_norm_backward(grad, input, shape, statistic(mean, input, weight),
                                                   statistic(rstd, input, weight), maybe(weight), maybe(bias),
                                                   three(wanted)), dinput, dweight, dbias); }>(),
            op<"GroupNorm", [](Tensor input, Tensor weight, Tensor bias, int64_t n, int64_t c, int64_t area,
                               int64_t groups, double eps, Out out, Out mean, Out rstd) {
                put(at::native_group_norm(input, maybe(weight), maybe(bias), n, c, area, groups, eps), out,
                    mean, rstd); }>(),
            op<"GroupNormBackward", [](Tensor grad, Tensor input, Tensor mean, Tensor rstd, Tensor weight,
                                       int64_t n, int64_t c, int64_t area, int64_t groups, Bools wanted,
                                       Out dinput, Out dweight, Out dbias) {
                put(at::native_group_norm_backward(grad, input, statistic(mean, input, weight),
                                                   statistic(rstd, input, weight), maybe(weight), n, c, area,
                                                   groups, three(wanted)), dinput, dweight, dbias); }>(),
            op<"BatchNorm", batch_norm>(),
            op<"BatchNormBackward", [](Tensor grad, Tensor input, Tensor weight, Tensor mean, Tensor var,
                                       Tensor saved_mean, Tensor saved_invstd, bool training, double eps,
                                       Bools wanted, Out dinput, Out dweight, Out dbias) {
                put(at::native_batch_norm_backward(grad, input, maybe(weight), maybe(mean), maybe(var),
                                                   maybe(saved_mean), maybe(saved_invstd), training, eps,
                                                   three(wanted)), dinput, dweight, dbias); }>(),
            op<"RmsNorm", [](Tensor x, Tensor gamma, double eps, Out out, Out rstd) {
                rms_norm(x, gamma, eps, out, rstd); }>(),
            op<"RmsNormGrad", [](Tensor grad, Tensor x, Tensor rstd, Tensor gamma, Out dx, Out dgamma) {
                rms_norm_backward(grad, x, rstd, gamma, dx, dgamma); }>(),
            op<"AddRmsNorm", [](Tensor a, Tensor b, Tensor gamma, double eps, Out out, Out rstd, Out sum) {
                const Tensor x = a + b;
                rms_norm(x, gamma, eps, out, rstd);
                sum = x; }>(),

            op<"Embedding", [](Tensor weight, Tensor indices, Out out) {
                out = at::embedding(weight, indices); }>(),
            op<"EmbeddingDenseBackward", [](Tensor grad, Tensor indices, uint64_t rows, uint64_t padding,
                                            bool by_freq, Out out) {
                out = at::embedding_dense_backward(grad, indices, static_cast<int64_t>(rows),
                                                   static_cast<int64_t>(padding), by_freq); }>(),
            op<"EmbeddingRenorm", [](InOut self, Tensor indices, double max_norm, double p) {
                at::embedding_renorm_(self, indices, max_norm, p); }>(),
        },
        {
            twins<"Relu", [](Tensor self) { return at::relu(self); }>(),
            twins<"LeakyRelu", [](Tensor self, Scalar slope) { return at::leaky_relu(self, slope); }>(),
            twins<"Elu", [](Tensor self, Scalar alpha, Scalar scale, Scalar in) {
                return at::elu(self, alpha, scale, in); }>(),
            twins<"Celu", [](Tensor self, Scalar alpha) { return at::celu(self, alpha); }>(),
            twins<"Hardtanh", [](Tensor self, Scalar low, Scalar high) {
                return at::hardtanh(self, low, high); }>(),
            twins<"Hardswish", [](Tensor self) { return at::hardswish(self); }>(),
            twins<"Hardsigmoid", [](Tensor self) { return at::hardsigmoid(self); }>(),
            twins<"Mish", [](Tensor self) { return at::mish(self); }>(),
            twins<"Threshold", [](Tensor self, Scalar threshold, Scalar value) {
                return at::threshold(self, threshold, value); }>(),
            twins<"Renorm", [](Tensor self, Scalar p, int64_t dim, Scalar max_norm) {
                return self.renorm(p, dim, max_norm); }>(),
        });
}
