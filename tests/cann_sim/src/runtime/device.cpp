// Devices and contexts.  A context is a device and nothing more: torch_npu has one a device.
#include "sim.h"

#include <unistd.h>

#include <mutex>

namespace sim {
namespace {

thread_local int current = 0;

// Where its address lies in this array is all that a context says.
char contexts[MAX_DEVICES];

std::mutex opening;
bool opened[MAX_DEVICES];

bool known(int device) { return device >= 0 && device < settings().devices; }

}  // namespace

int current_device() { return current; }

}  // namespace sim

using namespace sim;

extern "C" {

aclError aclrtGetDeviceCount(uint32_t* count) {
    *count = static_cast<uint32_t>(settings().devices);
    return ACL_SUCCESS;
}

aclError aclrtGetDevice(int32_t* device) {
    *device = current;
    return ACL_SUCCESS;
}

aclError aclrtSetDevice(int32_t device) {
    if (!known(device)) return ACL_ERROR_RT_INVALID_DEVICEID;
    std::lock_guard<std::mutex> guard(opening);
    if (!opened[device]) {
        if (!hold(device, settings().context_bytes)) {
            set_recent_error("EL0004: [cann_sim] no memory is left on the device to open it");
            return ACL_ERROR_RT_MEMORY_ALLOCATION;
        }
        opened[device] = true;
    }
    current = device;
    return ACL_SUCCESS;
}

aclError aclrtResetDevice(int32_t device) {
    if (!known(device)) return ACL_ERROR_RT_INVALID_DEVICEID;
    std::lock_guard<std::mutex> guard(opening);
    if (opened[device]) release(device, settings().context_bytes);
    opened[device] = false;
    return ACL_SUCCESS;
}

aclError aclrtGetCurrentContext(aclrtContext* context) {
    *context = &contexts[current];
    return ACL_SUCCESS;
}

aclError aclrtSetCurrentContext(aclrtContext context) {
    const auto* place = static_cast<const char*>(context);
    if (place < contexts || place >= contexts + MAX_DEVICES) return ACL_ERROR_RT_CONTEXT_NULL;
    current = static_cast<int>(place - contexts);
    return ACL_SUCCESS;
}

aclError aclrtGetPrimaryCtxState(int32_t device, uint32_t* flags, int32_t* active) {
    if (!known(device)) return ACL_ERROR_RT_INVALID_DEVICEID;
    if (flags) *flags = 0;
    std::lock_guard<std::mutex> guard(opening);
    *active = opened[device];
    return ACL_SUCCESS;
}

const char* aclrtGetSocName() { return settings().soc.c_str(); }

aclError aclrtDeviceCanAccessPeer(int32_t* can_access, int32_t device, int32_t peer) {
    if (!known(device) || !known(peer)) return ACL_ERROR_RT_INVALID_DEVICEID;
    *can_access = 1;
    return ACL_SUCCESS;
}

aclError aclrtDeviceEnablePeerAccess(int32_t peer, uint32_t) {
    return known(peer) ? ACL_SUCCESS : ACL_ERROR_RT_INVALID_DEVICEID;
}

// The numbers of an Ascend910B3 card, whatever the chip: torch_npu only shows them.
aclError aclGetDeviceCapability(uint32_t, aclDeviceInfo what, int64_t* value) {
    switch (what) {
        case ACL_DEVICE_INFO_AI_CORE_NUM: *value = 20; break;
        case ACL_DEVICE_INFO_VECTOR_CORE_NUM: *value = 40; break;
        case ACL_DEVICE_INFO_L2_SIZE: *value = 192 << 20; break;
        default: return ACL_ERROR_INVALID_PARAM;
    }
    return ACL_SUCCESS;
}

aclError aclrtDeviceGetBareTgid(int32_t* pid) {
    *pid = getpid();
    return ACL_SUCCESS;
}

}  // extern "C"
