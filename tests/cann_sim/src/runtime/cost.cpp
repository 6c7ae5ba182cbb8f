// How long kernels take on the simulated device: CANN_SIM_COSTS="aclnnMatmul=200us;*=5us", the first that fits counts.
// An op without a cost takes as long as it does on the CPU.
#include "sim.h"

#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <utility>
#include <vector>

namespace sim {
namespace {

using Cost = std::pair<std::string, uint64_t>;

[[noreturn]] void reject(const std::string& item) {
    std::fprintf(stderr, "[cann_sim] CANN_SIM_COSTS: %s is not OP=TIMEus or OP=TIMEms\n", item.c_str());
    std::exit(2);
}

std::vector<Cost> read(const std::string& text) {
    std::vector<Cost> found;
    std::istringstream items(text);
    for (std::string item; std::getline(items, item, ';');) {
        const size_t at = item.find('=');
        if (at == std::string::npos) reject(item);
        char* unit = nullptr;
        const double value = std::strtod(item.c_str() + at + 1, &unit);
        const std::string suffix = unit;
        if (value < 0 || (suffix != "us" && suffix != "ms")) reject(item);
        found.emplace_back(item.substr(0, at), static_cast<uint64_t>(value * (suffix == "us" ? 1e3 : 1e6)));
    }
    return found;
}

}  // namespace

uint64_t cost_ns(const std::string& op) {
    static const auto* const costs = new std::vector<Cost>(read(settings().costs));
    for (const Cost& cost : *costs)
        if (cost.first == op || cost.first == "*") return cost.second;
    return 0;
}

}  // namespace sim
