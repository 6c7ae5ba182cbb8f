// What torch_npu.profiler needs to start, mark and stop.  The files that a device writes (PROF_*/device_0) are not made:
// torch_npu then says "CANN Profiling data does not exist" and keeps the host's side of its trace.
#include <time.h>

#include "acl/acl_prof.h"
#include "sim.h"

using namespace sim;

extern "C" {

aclError aclprofInit(const char*, size_t) { return ACL_SUCCESS; }
aclError aclprofFinalize() { return ACL_SUCCESS; }
aclError aclprofStart(const aclprofConfig*) { return ACL_SUCCESS; }
aclError aclprofStop(const aclprofConfig*) { return ACL_SUCCESS; }
aclError aclprofWarmup(const aclprofConfig*) { return ACL_SUCCESS; }
aclError aclprofSetConfig(aclprofConfigType, const char*, size_t) { return ACL_SUCCESS; }
aclError aclprofMarkEx(const char*, size_t, aclrtStream) { return ACL_SUCCESS; }
aclError aclprofRegisterDeviceCallback() { return ACL_SUCCESS; }

aclprofConfig* aclprofCreateConfig(uint32_t*, uint32_t, aclprofAicoreMetrics, const aclprofAicoreEvents*, uint64_t) {
    return reinterpret_cast<aclprofConfig*>(new char);
}

aclError aclprofDestroyConfig(const aclprofConfig* config) {
    delete reinterpret_cast<const char*>(config);
    return ACL_SUCCESS;
}

aclError aclprofGetSupportedFeaturesV2(size_t* bytes, void** features) {
    *bytes = 0;
    *features = nullptr;
    return ACL_SUCCESS;
}

// libascend_hal.so: version and clock of the driver, asked for by the host's side of the profiler.
int halGetAPIVersion(int* version) {
    *version = 0x071905;
    return 0;
}

int halGetDeviceInfo(uint32_t, int32_t, int32_t, int64_t* value) {
    *value = 0;
    return 0;
}

// libmsprofiler.so.
int32_t MsprofRegisterCallback(uint32_t, void*) { return 0; }
int32_t MsprofReportApi(uint32_t, const void*) { return 0; }
int32_t MsprofReportCompactInfo(uint32_t, const void*, uint32_t) { return 0; }
int32_t MsprofReportAdditionalInfo(uint32_t, const void*, uint32_t) { return 0; }

// FNV-1a: any number that differs for different texts will do.
uint64_t MsprofGetHashId(const char* text, size_t length) {
    uint64_t hash = 14695981039346656037u;
    for (size_t at = 0; at < length; at++) hash = (hash ^ static_cast<uint8_t>(text[at])) * 1099511628211u;
    return hash;
}

// Ticks of 10 ns, as the counter of the server processors has.
uint64_t MsprofSysCycleTime() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC_RAW, &now);
    return (static_cast<uint64_t>(now.tv_sec) * 1000000000 + static_cast<uint64_t>(now.tv_nsec)) / 10;
}

}  // extern "C"
