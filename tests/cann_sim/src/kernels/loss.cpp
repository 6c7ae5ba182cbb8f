// Losses and their gradients.
#include <ATen/ops/binary_cross_entropy.h>
#include <ATen/ops/binary_cross_entropy_backward.h>
#include <ATen/ops/binary_cross_entropy_with_logits.h>
#include <ATen/ops/kl_div.h>
#include <ATen/ops/l1_loss.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/mse_loss_backward.h>
#include <ATen/ops/nll_loss2d_backward.h>
#include <ATen/ops/nll_loss2d_forward.h>
#include <ATen/ops/nll_loss_backward.h>
#include <ATen/ops/nll_loss_forward.h>
#include <ATen/ops/smooth_l1_loss.h>
#include <ATen/ops/smooth_l1_loss_backward.h>
#include <ATen/ops/soft_margin_loss.h>
#include <ATen/ops/soft_margin_loss_backward.h>

#include <ATen/core/Reduction.h>

#include "op.h"

namespace {

// The gradient of each element, if the loss is the mean or the sum of all; as ATen's own formulas order the
// operations.
Tensor reduced(const Tensor& grad, int64_t reduction, const Tensor& self) {
    return reduction == at::Reduction::Mean ? grad / self.numel() : grad;
}

Tensor logits_backward(const Tensor& grad, const Tensor& self, const Tensor& target, const Tensor& weight,
                       const Tensor& positive, int64_t reduction) {
    Tensor each;
    if (positive.defined()) {
        const Tensor t = positive * target;
        each = ((t + 1 - target) * self.sigmoid() - t) * grad;
    } else {
        each = (self.sigmoid() - target) * grad;
    }
    if (weight.defined()) each = each * weight;
    return reduced(each, reduction, self);
}

Tensor kl_div_backward(const Tensor& grad, const Tensor& target, int64_t reduction, bool log_target,
                       const Tensor& self) {
    return reduced((log_target ? target.exp() : target).neg() * grad, reduction, self);
}

}  // namespace

std::vector<Op> loss_ops() {
    return {
        op<"NLLLoss", [](Tensor self, Tensor target, Tensor weight, int64_t reduction, int64_t ignored,
                         Out out, Out total) {
            put(at::nll_loss_forward(self, target.to(at::kLong), maybe(weight), reduction, ignored), out,
                total); }>(),
        op<"NLLLossBackward", [](Tensor grad, Tensor self, Tensor target, Tensor weight, int64_t reduction,
                                 int64_t ignored, Tensor total, Out out) {
            out = at::nll_loss_backward(grad, self, target.to(at::kLong), maybe(weight), reduction, ignored,
                                        total); }>(),
        op<"NLLLoss2d", [](Tensor self, Tensor target, Tensor weight, int64_t reduction, int64_t ignored,
                           Out out, Out total) {
            put(at::nll_loss2d_forward(self, target.to(at::kLong), maybe(weight), reduction, ignored), out,
                total); }>(),
        op<"NLLLoss2dBackward", [](Tensor grad, Tensor self, Tensor target, Tensor weight, int64_t reduction,
                                   int64_t ignored, Tensor total, Out out) {
            out = at::nll_loss2d_backward(grad, self, target.to(at::kLong), maybe(weight), reduction, ignored,
                                          total); }>(),
        op<"MseLoss", [](Tensor self, Tensor target, int64_t reduction, Out out) {
            out = at::mse_loss(self, target, reduction); }>(),
        op<"MseLossBackward", [](Tensor grad, Tensor self, Tensor target, int64_t reduction, Out out) {
            out = at::mse_loss_backward(grad, self, target, reduction); }>(),
        op<"L1Loss", [](Tensor self, Tensor target, int64_t reduction, Out out) {
            out = at::l1_loss(self, target, reduction); }>(),
        op<"L1LossBackward", [](Tensor grad, Tensor self, Tensor target, int64_t reduction, Out out) {
            out = reduced(grad, reduction, self) * (self - target).sgn(); }>(),
        op<"SmoothL1Loss", [](Tensor self, Tensor target, int64_t reduction, float beta, Out out) {
            out = at::smooth_l1_loss(self, target, reduction, beta); }>(),
        op<"SmoothL1LossBackward", [](Tensor grad, Tensor self, Tensor target, int64_t reduction, float beta,
                                      Out out) {
            out = at::smooth_l1_loss_backward(grad, self, target, reduction, beta); }>(),
        op<"BinaryCrossEntropy", [](Tensor self, Tensor target, Tensor weight, int64_t reduction, Out out) {
            out = at::binary_cross_entropy(self, target, maybe(weight), reduction); }>(),
        op<"BinaryCrossEntropyBackward", [](Tensor grad, Tensor self, Tensor target, Tensor weight,
                                            int64_t reduction, Out out) {
            out = at::binary_cross_entropy_backward(grad, self, target, maybe(weight), reduction); }>(),
        op<"BinaryCrossEntropyWithLogits", [](Tensor self, Tensor target, Tensor weight, Tensor positive,
                                              int64_t reduction, Out out) {
            out = at::binary_cross_entropy_with_logits(self, target, maybe(weight), maybe(positive),
                                                       reduction); }>(),
        op<"BinaryCrossEntropyWithLogitsBackward", [](Tensor grad, Tensor self, Tensor target, Tensor weight,
                                                      Tensor positive, int64_t reduction, Out out) {
            out = logits_backward(grad, self, target, weight, positive, reduction); }>(),
        op<"KlDiv", [](Tensor self, Tensor target, int64_t reduction, bool log_target, Out out) {
            out = at::kl_div(self, target, reduction, log_target); }>(),
        op<"KlDivBackward", [](Tensor grad, Tensor self, Tensor target, int64_t reduction, bool log_target,
                               Out out) {
            out = kl_div_backward(grad, target, reduction, log_target, self); }>(),
        op<"SoftMarginLoss", [](Tensor self, Tensor target, int64_t reduction, Out out) {
            out = at::soft_margin_loss(self, target, reduction); }>(),
        op<"SoftMarginLossBackward", [](Tensor grad, Tensor self, Tensor target, int64_t reduction, Out out) {
            out = at::soft_margin_loss_backward(grad, self, target, reduction); }>(),
    };
}
