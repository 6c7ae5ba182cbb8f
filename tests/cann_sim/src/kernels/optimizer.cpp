// What a training step does besides forward and backward: fused optimizers, and the scaler of mixed
// precision.
#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/_amp_update_scale.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>

#include "op.h"

namespace {

// The numbers come as float, where a CPU computes with the double of Python: its results differ in the last
// bits.
void adamw(InOut self, InOut mean, InOut square, InOut max_square, Tensor grad, Tensor steps_before, float lr,
           float beta1, float beta2, float weight_decay, float eps, bool amsgrad, bool maximize) {
    at::_fused_adamw_({self}, {grad}, {mean}, {square},
                      max_square.defined() ? Tensors{max_square} : Tensors(), {steps_before + 1}, lr, beta1,
                      beta2, weight_decay, eps, amsgrad, maximize);
}

}  // namespace

std::vector<Op> optimizer_ops() {
    return {
        op<"ApplyAdamWV2", adamw>(),
        op<"FusedSgd", [](InOuts self, Tensors grads, InOuts momenta, Tensor grad_scale, float weight_decay,
                          float momentum, float lr, float dampening, bool nesterov, bool maximize,
                          bool first) {
            at::_fused_sgd_(self, grads, momenta, weight_decay, momentum, lr, dampening, nesterov, maximize,
                            first, maybe(grad_scale)); }>(),
        op<"ForeachNonFiniteCheckAndUnscale", [](InOuts grads, InOut found_inf, Tensor inverse_scale) {
            at::_amp_foreach_non_finite_check_and_unscale_(grads, found_inf, inverse_scale); }>(),
        op<"AmpUpdateScale", [](Tensor scale, Tensor growth, Tensor found_inf, double up, double down,
                                int64_t interval, Out new_scale, Out new_growth) {
            put(at::_amp_update_scale(scale, growth, found_inf, up, down, interval), new_scale,
                new_growth); }>(),
    };
}
