// Products of matrices, and distances between their rows.
#include <ATen/ops/_cdist_backward.h>
#include <ATen/ops/_cdist_forward.h>

#include "op.h"

// cubeMathType says how many bits of a float the matrix unit may drop.  A CPU drops none.
std::vector<Op> linear_ops() {
    return {
        op<"Mm", [](Tensor self, Tensor other, Out out, int8_t) { out = self.mm(other); }>(),
        op<"Mv", [](Tensor self, Tensor vector, Out out, int8_t) { out = self.mv(vector); }>(),
        op<"Dot", [](Tensor self, Tensor other, Out out) { out = self.dot(other); }>(),
        op<"Matmul", [](Tensor self, Tensor other, Out out, int8_t) { out = self.matmul(other); }>(),
        op<"BatchMatMul", [](Tensor self, Tensor other, Out out, int8_t) { out = self.bmm(other); }>(),
        op<"Addmm", [](Tensor self, Tensor a, Tensor b, Scalar beta, Scalar alpha, Out out, int8_t) {
            out = self.addmm(a, b, beta, alpha); }>(),
        op<"InplaceAddmm", [](InOut self, Tensor a, Tensor b, Scalar beta, Scalar alpha, int8_t) {
            self.addmm_(a, b, beta, alpha); }>(),
        op<"Addmv", [](Tensor self, Tensor matrix, Tensor vector, Scalar alpha, Scalar beta, Out out,
                       int8_t) {
            out = self.addmv(matrix, vector, beta, alpha); }>(),
        op<"Addr", [](Tensor self, Tensor a, Tensor b, Scalar beta, Scalar alpha, Out out) {
            out = self.addr(a, b, beta, alpha); }>(),
        op<"InplaceAddr", [](InOut self, Tensor a, Tensor b, Scalar beta, Scalar alpha) {
            self.addr_(a, b, beta, alpha); }>(),
        op<"Addbmm", [](Tensor self, Tensor a, Tensor b, Scalar beta, Scalar alpha, Out out, int8_t) {
            out = self.addbmm(a, b, beta, alpha); }>(),
        op<"Inverse", [](Tensor self, Out out) { out = self.inverse(); }>(),
        op<"Cdist", [](Tensor a, Tensor b, float p, int64_t mode, Out out) {
            out = at::_cdist_forward(a, b, p, mode < 0 ? std::nullopt : std::optional(mode)); }>(),
        op<"CdistBackward", [](Tensor grad, Tensor a, Tensor b, Tensor distances, float p, Out out) {
            out = at::_cdist_backward(grad, a, b, p, distances); }>(),
        op<"Baddbmm", [](Tensor self, Tensor a, Tensor b, Scalar beta, Scalar alpha, Out out, int8_t) {
            out = self.baddbmm(a, b, beta, alpha); }>(),
    };
}
