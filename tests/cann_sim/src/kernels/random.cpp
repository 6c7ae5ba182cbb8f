// Random numbers.  torch_npu keeps the state: each op is given the seed, and how many numbers were drawn
// before.  The numbers are a function of these two, come from a generator made for the one op, and are not
// those of a device.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/multinomial.h>
#include <ATen/ops/normal.h>
#include <ATen/ops/randperm.h>
#include <c10/util/accumulate.h>

#include "dropout.h"

namespace {

constexpr int64_t BITS = 8;

// ATen's generator takes 32 bits of its seed, so both words have to be mixed into these.
at::Generator generator(uint64_t seed, uint64_t offset) {
    uint64_t mixed = seed ^ (offset * 0x9E3779B97F4A7C15);
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9;
    return at::make_generator<at::CPUGeneratorImpl>(mixed ^ (mixed >> 32));
}

Tensor bit_values() { return at::arange(BITS, at::kByte).exp2().to(at::kByte); }

void draw_mask(const Ints& shape, double dropped, uint64_t seed, uint64_t offset, const Out& out) {
    const int64_t count = c10::multiply_integers(shape);
    Tensor kept =
        at::empty({out.place.numel() * BITS}, at::kByte).bernoulli_(1 - dropped, generator(seed, offset));
    kept.slice(0, count).zero_();
    out = (kept.view({-1, BITS}) * bit_values()).sum(1, false, at::kByte);
}

Tensor drop(const Tensor& self, const Tensor& mask, double dropped) {
    const double scale = dropped < 1 ? 1 / (1 - dropped) : 0;
    return self * dropout_bits(mask, self.sizes()).to(self.scalar_type()) * scale;
}

// A device draws for contiguous memory; so the numbers do not depend on how a tensor lies.
template <class Draw>
void fill(const InOut& self, Draw draw) {
    self.copy_(draw(at::empty(self.sizes(), self.options())));
}

}  // namespace

Tensor dropout_bits(const Tensor& mask, at::IntArrayRef shape) {
    const Tensor bits = mask.unsqueeze(-1).bitwise_and(bit_values()).ne(0).flatten();
    return bits.slice(0, 0, c10::multiply_integers(shape)).view(shape);
}

std::vector<Op> random_ops() {
    return {
        op<"DropoutGenMask", [](Ints shape, double p, int64_t seed, int64_t offset, Out out) {
            draw_mask(shape, p, seed, offset, out); }>(),
        op<"DropoutGenMaskV2", [](Ints shape, double p, int64_t seed, int64_t offset, aclDataType, Out out) {
            draw_mask(shape, p, seed, offset, out); }>(),
        op<"DropoutDoMask", [](Tensor self, Tensor mask, double p, Out out) { out = drop(self, mask, p); }>(),

        op<"InplaceNormal", [](InOut self, float mean, float std, int64_t seed, int64_t offset) {
            fill(self, [&](Tensor t) { return t.normal_(mean, std, generator(seed, offset)); }); }>(),
        op<"InplaceUniform", [](InOut self, double from, double to, uint64_t seed, uint64_t offset) {
            fill(self, [&](Tensor t) { return t.uniform_(from, to, generator(seed, offset)); }); }>(),
        op<"InplaceRandom", [](InOut self, int64_t from, int64_t to, int64_t seed, int64_t offset) {
            fill(self, [&](Tensor t) { return t.random_(from, to, generator(seed, offset)); }); }>(),
        op<"InplaceRandomWithoutFromTo", [](InOut self, int64_t seed, int64_t offset) {
            fill(self, [&](Tensor t) { return t.random_(generator(seed, offset)); }); }>(),
        op<"InplaceBernoulli", [](InOut self, Scalar p, int64_t seed, int64_t offset) {
            fill(self, [&](Tensor t) { return t.bernoulli_(p.toDouble(), generator(seed, offset)); }); }>(),
        op<"InplaceBernoulliTensor", [](InOut self, Tensor p, int64_t seed, int64_t offset) {
            fill(self, [&](Tensor t) { return t.bernoulli_(p, generator(seed, offset)); }); }>(),
        op<"SimThreadExponential", [](InOut self, int64_t, double lambda, int64_t seed, int64_t offset) {
            fill(self, [&](Tensor t) { return t.exponential_(lambda, generator(seed, offset)); }); }>(),
        op<"NormalFloatFloat", [](float mean, float std, int64_t seed, int64_t offset, Out out) {
            out = at::empty(out.place.sizes(), out.place.options()) .normal_(mean, std,
                                                                             generator(seed, offset)); }>(),
        op<"NormalFloatTensor", [](float mean, Tensor std, int64_t seed, int64_t offset, Out out) {
            out = at::normal(mean, std, generator(seed, offset)); }>(),
        op<"NormalTensorFloat", [](Tensor mean, float std, int64_t seed, int64_t offset, Out out) {
            out = at::normal(mean, std, generator(seed, offset)); }>(),
        op<"NormalTensorTensor", [](Tensor mean, Tensor std, int64_t seed, int64_t offset, Out out) {
            out = at::normal(mean, std, generator(seed, offset)); }>(),
        op<"Randperm", [](int64_t count, int64_t seed, int64_t offset, Out out) {
            out = at::randperm(count, generator(seed, offset), out.place.options()); }>(),
        op<"Multinomial", [](Tensor self, int64_t samples, bool replacement, int64_t seed, int64_t offset,
                             Out out) {
            out = self.multinomial(samples, replacement, generator(seed, offset)); }>(),
    };
}
