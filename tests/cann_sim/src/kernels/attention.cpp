// Fused attention, and the rotation of positions.
//
// Where nothing is dropped this is the kernel that a CPU takes for scaled_dot_product_attention, so the
// numbers are its numbers.  It cannot drop, and wants one size of head; else the formula is written out.
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <limits>

#include "dropout.h"
#include "op.h"

namespace {

// Batch, heads, sequence, size of a head: the one order that is computed in.
Tensor as_bnsd(const Tensor& tensor, const Text& layout, int64_t heads) {
    if (layout == "BNSD") return tensor;
    if (layout == "BSND") return tensor.transpose(1, 2);
    if (layout == "BSH") return tensor.unflatten(2, {heads, -1}).transpose(1, 2);
    if (layout == "SBH") return tensor.unflatten(2, {heads, -1}).permute({1, 2, 0, 3});
    TORCH_CHECK(false, "layout ", layout, " of attention is not simulated");
}

Tensor from_bnsd(const Tensor& tensor, const Text& layout) {
    if (layout == "BNSD") return tensor;
    if (layout == "BSND") return tensor.transpose(1, 2);
    if (layout == "BSH") return tensor.transpose(1, 2).flatten(2);
    return tensor.permute({2, 0, 1, 3}).flatten(2);
}

// How many heads keys and values have is only told by their shape.
int64_t heads_of(const Tensor& keys, const Tensor& queries, const Text& layout, int64_t heads) {
    if (layout == "BNSD") return keys.size(1);
    if (layout == "BSND") return keys.size(2);
    return keys.size(2) / (queries.size(2) / heads);
}

constexpr int64_t LEFT_UP_CAUSAL = 2;
constexpr int64_t RIGHT_DOWN_CAUSAL = 3;

struct Attention {
    Tensor q, k, v;
    int64_t shared;  // so many heads of queries share one of keys and values
    double scale, keep;
    bool causal;
    std::optional<Tensor> bias;  // added to the scores: 0 or -inf for a mask
    Tensor kept;                 // which of the scores survive dropout, divided by keep

    Attention(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& shift,
              const Tensor& drop, const Tensor& mask, double scale, double keep, int64_t heads,
              const Text& layout, int64_t sparse)
        : scale(scale), keep(keep), causal(sparse == LEFT_UP_CAUSAL) {
        TORCH_CHECK(sparse >= 0 && sparse <= RIGHT_DOWN_CAUSAL, "sparse mode ", sparse, " is not simulated");
        const int64_t kv_heads = heads_of(key, query, layout, heads);
        shared = heads / kv_heads;
        q = as_bnsd(query, layout, heads);
        k = as_bnsd(key, layout, kv_heads);
        v = as_bnsd(value, layout, kv_heads);
        // The triangle comes as a mask of 2048 by 2048 whatever the shape is, so it is made here.
        if (sparse == RIGHT_DOWN_CAUSAL) forbid(triangle(1 + k.size(2) - q.size(2)));
        if (sparse < LEFT_UP_CAUSAL && mask.defined() && mask.numel()) forbid(mask.to(at::kBool));
        if (shift.defined() && shift.numel()) bias = bias ? *bias + shift : shift;
        if (keep < 1 && drop.defined()) {
            kept = dropout_bits(drop, {q.size(0), q.size(1), q.size(2), k.size(2)}).to(at::kFloat) / keep;
        }
    }

    Tensor triangle(int64_t diagonal) const {
        return at::ones({q.size(2), k.size(2)}, at::kBool).triu(diagonal);
    }
    void forbid(const Tensor& mask) {
        constexpr auto NEVER = -std::numeric_limits<double>::infinity();
        bias = at::zeros(mask.sizes(), q.options()).masked_fill(mask, NEVER);
    }
    bool is_plain() const { return !kept.defined() && q.size(3) == v.size(3); }

    std::tuple<Tensor, Tensor> plain() const {
        return at::_scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, causal, bias, scale);
    }

    // From here on the formula, in float and with a head of keys and values for each of queries.
    Tensor wide(const Tensor& x) const {
        return x.to(at::kFloat).repeat_interleave(q.size(1) / x.size(1), 1);
    }
    Tensor narrow(const Tensor& grad) const { return grad.unflatten(1, {-1, shared}).sum(2); }

    Tensor scores() const {
        Tensor found = wide(q).matmul(wide(k).transpose(-2, -1)) * scale;
        if (bias) found = found + bias->to(at::kFloat);
        return causal ? found.masked_fill(triangle(1), -std::numeric_limits<float>::infinity()) : found;
    }

    Tensor forward() const {
        if (is_plain()) return std::get<0>(plain());
        const Tensor weights = scores().softmax(-1);
        return (kept.defined() ? weights * kept : weights).matmul(wide(v));
    }

    std::tuple<Tensor, Tensor, Tensor> backward(const Tensor& grad) const {
        if (is_plain()) {
            const auto [out, log_sum] = plain();
            return at::_scaled_dot_product_flash_attention_for_cpu_backward(grad, q, k, v, out, log_sum, 0.0,
                                                                            causal, bias, scale);
        }
        const Tensor g = grad.to(at::kFloat);
        const Tensor weights = scores().softmax(-1);
        const Tensor used = kept.defined() ? weights * kept : weights;
        Tensor dweights = g.matmul(wide(v).transpose(-2, -1));
        if (kept.defined()) dweights = dweights * kept;
        const Tensor dscores = (dweights - (dweights * weights).sum(-1, true)) * weights * scale;
        return {dscores.matmul(wide(k)), narrow(dscores.transpose(-2, -1).matmul(wide(q))),
                narrow(used.transpose(-2, -1).matmul(g))};
    }
};

void flash(Tensor q, Tensor k, Tensor v, Tensor shift, Tensor drop, Tensor, Tensor mask, Ints, double scale,
           double keep, int64_t, int64_t, int64_t heads, Text layout, int64_t, int64_t sparse,
           Out softmax_max, Out softmax_sum, Out, Out out) {
    const Attention attention(q, k, v, shift, drop, mask, scale, keep, heads, layout, sparse);
    out = from_bnsd(attention.forward(), layout);
    if (!softmax_max.place.defined() || softmax_max.place.numel() == 0) return;
    // Each is written eight times over, as the shape of the outputs wants it.
    const Tensor scores = attention.scores();
    const Tensor most = scores.amax(-1, true);
    softmax_max = most.expand(softmax_max.place.sizes());
    softmax_sum = (scores - most).exp().sum(-1, true).expand(softmax_sum.place.sizes());
}

void flash_backward(Tensor q, Tensor k, Tensor v, Tensor grad, Tensor shift, Tensor drop, Tensor, Tensor mask,
                    Tensor, Tensor, Tensor, Tensor, Ints, double scale, double keep, int64_t, int64_t,
                    int64_t heads, Text layout, int64_t, int64_t sparse, Out dq, Out dk, Out dv, Out) {
    const Attention attention(q, k, v, shift, drop, mask, scale, keep, heads, layout, sparse);
    const auto [to_q, to_k, to_v] = attention.backward(as_bnsd(grad, layout, heads));
    dq = from_bnsd(to_q, layout);
    dk = from_bnsd(to_k, layout);
    dv = from_bnsd(to_v, layout);
}

// Mode 0 turns the first half against the second, mode 1 each even element against the odd one after it.
Tensor turned(const Tensor& x, int64_t mode) {
    if (mode == 0) {
        const Tensors halves = x.chunk(2, -1);
        return at::cat(Tensors{-halves[1], halves[0]}, -1);
    }
    TORCH_CHECK(mode == 1, "rotary mode ", mode, " is not simulated");
    const Tensor pairs = x.unflatten(-1, {-1, 2});
    return at::stack(Tensors{-pairs.select(-1, 1), pairs.select(-1, 0)}, -1).flatten(-2);
}

void rotary(const Tensor& x, const Tensor& cos, const Tensor& sin, int64_t mode, const Out& out) {
    out = x * cos + turned(x, mode) * sin;
}

void rotary_backward(const Tensor& grad, const Tensor& cos, const Tensor& sin, const Tensor& x, int64_t mode,
                     const Out& dx, const Out& dcos, const Out& dsin) {
    dx = grad * cos - turned(grad * sin, mode);
    if (!x.defined()) return;
    dcos = (grad * x).sum_to_size(cos.sizes());
    dsin = (grad * turned(x, mode)).sum_to_size(sin.sizes());
}

}  // namespace

std::vector<Op> attention_ops() {
    return {
        op<"FlashAttentionScore", flash>(),
        op<"FlashAttentionScoreGrad", flash_backward>(),
        op<"FlashAttentionScoreV2", [](Tensor q, Tensor k, Tensor v, Tensor shift, Tensor drop, Tensor pad,
                                       Tensor mask, Ints prefix, Ints, Ints, double scale, double keep,
                                       int64_t before, int64_t after, int64_t heads, Text layout,
                                       int64_t inner, int64_t sparse, int64_t, Out softmax_max,
                                       Out softmax_sum, Out softmax, Out out) {
            flash(q, k, v, shift, drop, pad, mask, prefix, scale, keep, before, after, heads, layout, inner,
                  sparse, softmax_max, softmax_sum, softmax, out); }>(),
        op<"FlashAttentionScoreGradV2", [](Tensor q, Tensor k, Tensor v, Tensor grad, Tensor shift,
                                           Tensor drop, Tensor pad, Tensor mask, Tensor most, Tensor sum,
                                           Tensor softmax, Tensor out, Ints prefix, Ints, Ints, double scale,
                                           double keep, int64_t before, int64_t after, int64_t heads,
                                           Text layout, int64_t inner, int64_t sparse, int64_t, Out dq,
                                           Out dk, Out dv, Out dshift) {
            flash_backward(q, k, v, grad, shift, drop, pad, mask, most, sum, softmax, out, prefix, scale,
                           keep, before, after, heads, layout, inner, sparse, dq, dk, dv, dshift); }>(),
        op<"RotaryPositionEmbedding", [](Tensor x, Tensor cos, Tensor sin, int64_t mode, Out out) {
            rotary(x, cos, sin, mode, out); }>(),
        op<"RotaryPositionEmbeddingV2", [](Tensor x, Tensor cos, Tensor sin, int64_t mode, Tensor rotate,
                                           Out out) {
            TORCH_CHECK(!rotate.defined(), "a rotation matrix is not simulated");
            rotary(x, cos, sin, mode, out); }>(),
        op<"RotaryPositionEmbeddingGrad", [](Tensor grad, Tensor cos, Tensor sin, Tensor x, int64_t mode,
                                             Out dx, Out dcos, Out dsin) {
            rotary_backward(grad, cos, sin, x, mode, dx, dcos, dsin); }>(),
    };
}
