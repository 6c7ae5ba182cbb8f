// Layers that know what lies beside what: convolution, pooling, resizing, padding.
#include <ATen/ops/_adaptive_avg_pool2d_backward.h>
#include <ATen/ops/_adaptive_avg_pool3d_backward.h>
#include <ATen/ops/adaptive_avg_pool2d.h>
#include <ATen/ops/adaptive_avg_pool3d.h>
#include <ATen/ops/adaptive_max_pool2d.h>
#include <ATen/ops/adaptive_max_pool2d_backward.h>
#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/avg_pool2d_backward.h>
#include <ATen/ops/avg_pool3d.h>
#include <ATen/ops/avg_pool3d_backward.h>
#include <ATen/ops/col2im.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/grid_sampler_2d.h>
#include <ATen/ops/grid_sampler_2d_backward.h>
#include <ATen/ops/im2col.h>
#include <ATen/ops/max_pool2d_with_indices.h>
#include <ATen/ops/max_pool2d_with_indices_backward.h>
#include <ATen/ops/max_pool3d_with_indices.h>
#include <ATen/ops/max_pool3d_with_indices_backward.h>
#include <ATen/ops/reflection_pad1d.h>
#include <ATen/ops/reflection_pad1d_backward.h>
#include <ATen/ops/reflection_pad2d.h>
#include <ATen/ops/reflection_pad2d_backward.h>
#include <ATen/ops/replication_pad1d.h>
#include <ATen/ops/replication_pad1d_backward.h>
#include <ATen/ops/replication_pad2d.h>
#include <ATen/ops/replication_pad2d_backward.h>
#include <ATen/ops/upsample_bicubic2d.h>
#include <ATen/ops/upsample_bicubic2d_backward.h>
#include <ATen/ops/upsample_bilinear2d.h>
#include <ATen/ops/upsample_bilinear2d_backward.h>
#include <ATen/ops/upsample_linear1d.h>
#include <ATen/ops/upsample_linear1d_backward.h>
#include <ATen/ops/upsample_nearest1d.h>
#include <ATen/ops/upsample_nearest1d_backward.h>
#include <ATen/ops/upsample_nearest2d.h>
#include <ATen/ops/upsample_nearest2d_backward.h>

#include "op.h"

namespace {

// op-plugin says 0 for "no divisor given", and 0 or -1 for "no scale given".
std::optional<int64_t> divisor(int64_t given) { return given ? std::optional(given) : std::nullopt; }
std::optional<double> factor(double given) { return given > 0 ? std::optional(given) : std::nullopt; }

void convolution_backward(Tensor grad, Tensor input, Tensor weight, Ints bias, Ints stride, Ints padding,
                          Ints dilation, bool transposed, Ints extra, int groups, Bools wanted, int8_t,
                          Out dinput, Out dweight, Out dbias) {
    const auto [for_input, for_weight, for_bias] = at::convolution_backward(
        grad, input, weight, at::OptionalIntArrayRef(bias), stride, padding, dilation, transposed, extra,
        groups, {wanted.at(0), wanted.at(1), wanted.at(2)});
    if (wanted[0]) dinput = for_input;
    if (wanted[1]) dweight = for_weight;
    if (wanted[2]) dbias = for_bias;
}

// Of MaxPool2dWithMask nobody but its own backward reads the mask, whose form CANN does not tell; so none is
// made, and the backward finds the places again.
void max_pool_masked(Tensor self, Ints kernel, Ints stride, Ints padding, Ints dilation, bool ceil, Out out,
                     Out mask) {
    out = std::get<0>(at::max_pool2d_with_indices(self, kernel, stride, padding, dilation, ceil));
    mask.place.zero_();
}

void max_pool_masked_backward(Tensor grad, Tensor self, Tensor, Ints kernel, Ints stride, Ints padding,
                              Ints dilation, bool ceil, Out out) {
    const Tensor places =
        std::get<1>(at::max_pool2d_with_indices(self, kernel, stride, padding, dilation, ceil));
    out = at::max_pool2d_with_indices_backward(grad, self, kernel, stride, padding, dilation, ceil, places);
}

}  // namespace

std::vector<Op> spatial_ops() {
    return {
        op<"Convolution", [](Tensor input, Tensor weight, Tensor bias, Ints stride, Ints padding,
                             Ints dilation, bool transposed, Ints extra, int64_t groups, Out out, int8_t) {
            out = at::convolution(input, weight, maybe(bias), stride, padding, dilation, transposed, extra,
                                  groups); }>(),
        op<"ConvolutionBackward", convolution_backward>(),
        op<"ConvDepthwise2d", [](Tensor input, Tensor weight, Ints, Tensor bias, Ints stride, Ints padding,
                                 Ints dilation, Out out, int8_t) {
            out = at::convolution(input, weight, maybe(bias), stride, padding, dilation, false, {0, 0},
                                  input.size(1)); }>(),
        op<"Im2col", [](Tensor self, Ints kernel, Ints dilation, Ints padding, Ints stride, Out out) {
            out = at::im2col(self, kernel, dilation, padding, stride); }>(),
        op<"Im2colBackward", [](Tensor grad, Ints size, Ints kernel, Ints dilation, Ints padding, Ints stride,
                                Out out) {
            out = at::col2im(grad, size, kernel, dilation, padding, stride); }>(),

        op<"MaxPool2dWithMask", max_pool_masked>(),
        op<"MaxPool2dWithMaskBackward", max_pool_masked_backward>(),
        op<"MaxPool2dWithIndices", [](Tensor self, Ints kernel, Ints stride, Ints padding, Ints dilation,
                                      bool ceil, Out out, Out indices) {
            put(at::max_pool2d_with_indices(self, kernel, stride, padding, dilation, ceil), out,
                indices); }>(),
        op<"MaxPool2dWithIndicesBackward", [](Tensor grad, Tensor self, Tensor indices, Ints kernel,
                                              Ints stride, Ints padding, Ints dilation, bool ceil, Out out) {
            out = at::max_pool2d_with_indices_backward(grad, self, kernel, stride, padding, dilation, ceil,
                                                       indices.to(at::kLong)); }>(),
        op<"MaxPool3dWithArgmax", [](Tensor self, Ints kernel, Ints stride, Ints padding, Ints dilation,
                                     bool ceil, Out out, Out indices) {
            put(at::max_pool3d_with_indices(self, kernel, stride, padding, dilation, ceil), out,
                indices); }>(),
        op<"MaxPool3dWithArgmaxBackward", [](Tensor grad, Tensor self, Tensor indices, Ints kernel,
                                             Ints stride, Ints padding, Ints dilation, bool ceil, Out out) {
            out = at::max_pool3d_with_indices_backward(grad, self, kernel, stride, padding, dilation, ceil,
                                                       indices.to(at::kLong)); }>(),
        op<"AvgPool2d", [](Tensor self, Ints kernel, Ints stride, Ints padding, bool ceil, bool count_pad,
                           int64_t by, int8_t, Out out) {
            out = at::avg_pool2d(self, kernel, stride, padding, ceil, count_pad, divisor(by)); }>(),
        op<"AvgPool2dBackward", [](Tensor grad, Tensor self, Ints kernel, Ints stride, Ints padding,
                                   bool ceil, bool count_pad, int64_t by, int8_t, Out out) {
            out = at::avg_pool2d_backward(grad, self, kernel, stride, padding, ceil, count_pad,
                                          divisor(by)); }>(),
        op<"AvgPool3d", [](Tensor self, Ints kernel, Ints stride, Ints padding, bool ceil, bool count_pad,
                           int64_t by, Out out) {
            out = at::avg_pool3d(self, kernel, stride, padding, ceil, count_pad, divisor(by)); }>(),
        op<"AvgPool3dBackward", [](Tensor grad, Tensor self, Ints kernel, Ints stride, Ints padding,
                                   bool ceil, bool count_pad, int64_t by, Out out) {
            out = at::avg_pool3d_backward(grad, self, kernel, stride, padding, ceil, count_pad,
                                          divisor(by)); }>(),
        op<"AdaptiveAvgPool2d", [](Tensor self, Ints size, Out out) {
            out = at::adaptive_avg_pool2d(self, size); }>(),
        op<"AdaptiveAvgPool2dBackward", [](Tensor grad, Tensor self, Out out) {
            out = at::_adaptive_avg_pool2d_backward(grad, self); }>(),
        op<"AdaptiveAvgPool3d", [](Tensor self, Ints size, Out out) {
            out = at::adaptive_avg_pool3d(self, size); }>(),
        op<"AdaptiveAvgPool3dBackward", [](Tensor grad, Tensor self, Out out) {
            out = at::_adaptive_avg_pool3d_backward(grad, self); }>(),
        op<"AdaptiveMaxPool2d", [](Tensor self, Ints size, Out out, Out indices) {
            put(at::adaptive_max_pool2d(self, size), out, indices); }>(),
        op<"AdaptiveMaxPool2dBackward", [](Tensor grad, Tensor self, Tensor indices, Out out) {
            out = at::adaptive_max_pool2d_backward(grad, self, indices.to(at::kLong)); }>(),

        op<"UpsampleNearest1d", [](Tensor self, Ints size, Out out) {
            out = at::upsample_nearest1d(self, size); }>(),
        op<"UpsampleNearest1dV2", [](Tensor self, Ints size, float scale, Out out) {
            out = at::upsample_nearest1d(self, size, factor(scale)); }>(),
        op<"UpsampleNearest1dBackward", [](Tensor grad, Ints size, Ints input, double scale, Out out) {
            out = at::upsample_nearest1d_backward(grad, size, input, factor(scale)); }>(),
        op<"UpsampleNearest2d", [](Tensor self, Ints size, Out out) {
            out = at::upsample_nearest2d(self, size); }>(),
        op<"UpsampleNearest2dV2", [](Tensor self, Ints size, float high, float wide, Out out) {
            out = at::upsample_nearest2d(self, size, factor(high), factor(wide)); }>(),
        op<"UpsampleNearest2dBackward", [](Tensor grad, Ints size, Ints input, double high, double wide,
                                           Out out) {
            out = at::upsample_nearest2d_backward(grad, size, input, factor(high), factor(wide)); }>(),
        op<"UpsampleLinear1d", [](Tensor self, Ints size, bool corners, double scale, Out out) {
            out = at::upsample_linear1d(self, size, corners, factor(scale)); }>(),
        op<"UpsampleLinear1dBackward", [](Tensor grad, Ints size, Ints input, bool corners, double scale,
                                          Out out) {
            out = at::upsample_linear1d_backward(grad, size, input, corners, factor(scale)); }>(),
        op<"UpsampleBilinear2d", [](Tensor self, Ints size, bool corners, double high, double wide, Out out) {
            out = at::upsample_bilinear2d(self, size, corners, factor(high), factor(wide)); }>(),
        op<"UpsampleBilinear2dBackward", [](Tensor grad, Ints size, Ints input, bool corners, double high,
                                            double wide, Out out) {
            out = at::upsample_bilinear2d_backward(grad, size, input, corners, factor(high),
                                                   factor(wide)); }>(),
        op<"UpsampleBilinear2dBackwardV2", [](Tensor grad, Ints size, Ints input, bool corners, double high,
                                              double wide, Out out) {
            out = at::upsample_bilinear2d_backward(grad, size, input, corners, factor(high),
                                                   factor(wide)); }>(),
        op<"UpsampleBicubic2d", [](Tensor self, Ints size, bool corners, double high, double wide, Out out) {
            out = at::upsample_bicubic2d(self, size, corners, factor(high), factor(wide)); }>(),
        op<"UpsampleBicubic2dBackward", [](Tensor grad, Ints size, Ints input, bool corners, double high,
                                           double wide, Out out) {
            out = at::upsample_bicubic2d_backward(grad, size, input, corners, factor(high),
                                                  factor(wide)); }>(),
        op<"GridSampler2D", [](Tensor input, Tensor grid, int64_t how, int64_t padding, bool corners,
                               Out out) {
            out = at::grid_sampler_2d(input, grid, how, padding, corners); }>(),
        op<"GridSampler2DBackward", [](Tensor grad, Tensor input, Tensor grid, int64_t how, int64_t padding,
                                       bool corners, Bools wanted, Out dinput, Out dgrid) {
            put(at::grid_sampler_2d_backward(grad, input, grid, how, padding, corners, {true, wanted.at(1)}),
                dinput, dgrid); }>(),

        op<"ReflectionPad1d", [](Tensor self, Ints padding, Out out) {
            out = at::reflection_pad1d(self, padding); }>(),
        op<"ReflectionPad1dBackward", [](Tensor grad, Tensor self, Ints padding, Out out) {
            out = at::reflection_pad1d_backward(grad, self, padding); }>(),
        op<"ReflectionPad2d", [](Tensor self, Ints padding, Out out) {
            out = at::reflection_pad2d(self, padding); }>(),
        op<"ReflectionPad2dBackward", [](Tensor grad, Tensor self, Ints padding, Out out) {
            out = at::reflection_pad2d_backward(grad, self, padding); }>(),
        op<"ReplicationPad1d", [](Tensor self, Ints padding, Out out) {
            out = at::replication_pad1d(self, padding); }>(),
        op<"ReplicationPad1dBackward", [](Tensor grad, Tensor self, Ints padding, Out out) {
            out = at::replication_pad1d_backward(grad, self, padding); }>(),
        op<"ReplicationPad2d", [](Tensor self, Ints padding, Out out) {
            out = at::replication_pad2d(self, padding); }>(),
        op<"ReplicationPad2dBackward", [](Tensor grad, Tensor self, Ints padding, Out out) {
            out = at::replication_pad2d_backward(grad, self, padding); }>(),
    };
}
