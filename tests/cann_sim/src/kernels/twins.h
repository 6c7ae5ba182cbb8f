// Most pointwise ops of CANN come twice: aclnnExp writes elsewhere, aclnnInplaceExp over its first parameter.
#pragma once
#include <array>

#include "op.h"

template <std::size_t N>
constexpr Name<N + 7> in_place(const Name<N>& name) {
    char text[N + 7] = {'I', 'n', 'p', 'l', 'a', 'c', 'e'};
    std::copy_n(name.text, N, text + 7);
    return Name<N + 7>(text);
}

template <Name name, auto f, class... Rest>
std::array<Op, 2> twins_of(Tensor (*)(Tensor, Rest...)) {
    return {op<name, [](Tensor self, Rest... rest, Out out) { out = f(self, rest...); }>(),
            op<in_place(name), [](InOut self, Rest... rest) { self.copy_(f(self, rest...)); }>()};
}

//     twins<"Exp", [](Tensor x) { return x.exp(); }>()
template <Name name, auto f>
std::array<Op, 2> twins() {
    return twins_of<name, f>(+f);
}

inline std::vector<Op> together(std::vector<Op> table, std::initializer_list<std::array<Op, 2>> pairs) {
    for (const auto& pair : pairs) table.insert(table.end(), pair.begin(), pair.end());
    return table;
}
