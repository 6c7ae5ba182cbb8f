// What a chip does with a number that is too large: keep the largest and set a sticky register (saturation),
// or let it become inf.  Which chips can do what is in torch_npu's documentation of INF_NAN_MODE_ENABLE.
#include <atomic>
#include <cstring>

#include "sim.h"

namespace sim {
namespace {

constexpr int32_t SET = 1;  // what a register that is set holds; torch_npu only looks whether it is 0
constexpr aclrtFloatOverflowMode NOT_CHOSEN = ACL_RT_OVERFLOW_MODE_UNDEF;

std::atomic<bool> registers[MAX_DEVICES];
std::atomic<aclrtFloatOverflowMode> chosen = NOT_CHOSEN;

bool starts_with(const std::string& text, const char* start) { return text.rfind(start, 0) == 0; }

// Ascend910B is an old name of the first 910; Ascend910B1 and later are the second.
bool can_inf_nan() {
    const std::string& soc = settings().soc;
    return (starts_with(soc, "Ascend910B") && soc != "Ascend910B") || starts_with(soc, "Ascend910_93") ||
           starts_with(soc, "Ascend950");
}

bool can_saturate() { return !starts_with(settings().soc, "Ascend950"); }

}  // namespace

bool saturates() {
    if (chosen == NOT_CHOSEN) return !can_inf_nan();
    return chosen == ACL_RT_OVERFLOW_MODE_SATURATION;
}

void set_overflow(int device) { registers[device] = true; }
bool overflowed(int device) { return registers[device]; }
void clear_overflow(int device) { registers[device] = false; }

}  // namespace sim

using namespace sim;

extern "C" {

// By torch_npu at its start: 0 where the chip saturates or INF_NAN_MODE_FORCE_DISABLE=1, else 1.
aclError aclrtSetDeviceSatMode(aclrtFloatOverflowMode mode) {
    if (mode == ACL_RT_OVERFLOW_MODE_INFNAN ? !can_inf_nan() : !can_saturate())
        return ACL_ERROR_RT_FEATURE_NOT_SUPPORT;
    chosen = mode;
    return ACL_SUCCESS;
}

aclError aclrtGetDeviceSatMode(aclrtFloatOverflowMode* mode) {
    *mode = saturates() ? ACL_RT_OVERFLOW_MODE_SATURATION : ACL_RT_OVERFLOW_MODE_INFNAN;
    return ACL_SUCCESS;
}

aclError aclrtGetOverflowStatus(void* place, size_t room, aclrtStream handle) {
    if (!place || room < sizeof SET) return ACL_ERROR_RT_PARAM_INVALID;
    Stream* const stream = stream_of(handle);
    const int device = device_of(stream);
    push(stream, {"NPUGetFloatStatus", [=] {
                      std::memset(place, 0, room);
                      if (overflowed(device)) std::memcpy(place, &SET, sizeof SET);
                  }});
    return ACL_SUCCESS;
}

aclError aclrtResetOverflowStatus(aclrtStream handle) {
    Stream* const stream = stream_of(handle);
    const int device = device_of(stream);
    push(stream, {"NPUClearFloatStatus", [device] { clear_overflow(device); }});
    return ACL_SUCCESS;
}

// Here every stream watches always: torch_npu turns the switch on for each stream that it makes.
aclError aclrtSetStreamOverflowSwitch(aclrtStream, uint32_t) { return ACL_SUCCESS; }

aclError aclrtGetStreamOverflowSwitch(aclrtStream, uint32_t* on) {
    *on = 1;
    return ACL_SUCCESS;
}

// torch_npu asks this before it looks at the name of the chip.
aclError aclGetCannAttribute(aclCannAttr attribute, int32_t* value) {
    if (attribute != ACL_CANN_ATTR_INF_NAN && attribute != ACL_CANN_ATTR_BF16) return ACL_ERROR_INVALID_PARAM;
    *value = can_inf_nan();
    return ACL_SUCCESS;
}

}  // extern "C"
