#include "sim.h"

#include <cstdio>
#include <cstdlib>

namespace sim {
namespace {

std::string text(const char* name, const char* otherwise) {
    const char* value = std::getenv(name);
    return value && *value ? value : otherwise;
}

uint64_t number(const char* name, uint64_t otherwise, uint64_t least, uint64_t most) {
    const std::string value = text(name, "");
    if (value.empty()) return otherwise;
    char* end = nullptr;
    const uint64_t found = std::strtoull(value.c_str(), &end, 10);
    if (*end || found < least || found > most) {
        std::fprintf(stderr, "[cann_sim] %s=%s: a number from %llu to %llu is needed\n", name, value.c_str(),
                     (unsigned long long)least, (unsigned long long)most);
        std::exit(2);
    }
    return found;
}

Settings read() {
    Settings found;
    found.soc = text("CANN_SIM_SOC", "Ascend910B3");
    found.devices = static_cast<int>(number("CANN_SIM_DEVICES", 1, 1, MAX_DEVICES));
    found.hbm_bytes = number("CANN_SIM_HBM_MIB", 4096, 1, 1 << 20) << 20;
    found.context_bytes = number("CANN_SIM_CONTEXT_MIB", 64, 0, 1 << 20) << 20;
    found.ledger = text("CANN_SIM_LEDGER", "");
    found.faults = text("CANN_SIM_FAULTS", "");
    found.costs = text("CANN_SIM_COSTS", "");
    return found;
}

}  // namespace

const Settings& settings() {
    static const Settings* const found = new Settings(read());
    return *found;
}

}  // namespace sim
