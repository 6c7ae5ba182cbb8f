// Addresses apart from memory, for expandable segments: a reservation is a mapping that nobody may touch, physical memory
// is an anonymous file, and mapping it lays that file over the reservation.
#include "sim.h"

#include <sys/mman.h>
#include <unistd.h>

#include <map>
#include <mutex>

namespace {

struct Physical {
    int file;
    int device;
    size_t bytes;
};

std::mutex mutex;
std::map<void*, size_t>& reserved() {
    static auto* const all = new std::map<void*, size_t>;
    return *all;
}
std::map<void*, size_t>& mapped() {
    static auto* const all = new std::map<void*, size_t>;
    return *all;
}

void* nobody_may_touch(void* place, size_t bytes, int flags) {
    return mmap(place, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);
}

}  // namespace

using namespace sim;

extern "C" {

aclError aclrtReserveMemAddress(void** place, size_t bytes, size_t, void* wanted, uint64_t) {
    *place = nobody_may_touch(wanted, bytes, 0);
    if (*place == MAP_FAILED) return ACL_ERROR_RT_MEMORY_ALLOCATION;
    std::lock_guard<std::mutex> guard(mutex);
    reserved()[*place] = bytes;
    return ACL_SUCCESS;
}

aclError aclrtReserveMemAddressNoUCMemory(void** place, size_t bytes, size_t grain, void* wanted, uint64_t flags) {
    return aclrtReserveMemAddress(place, bytes, grain, wanted, flags);
}

aclError aclrtReleaseMemAddress(void* place) {
    std::lock_guard<std::mutex> guard(mutex);
    auto found = reserved().find(place);
    if (found == reserved().end()) return ACL_ERROR_RT_PARAM_INVALID;
    munmap(place, found->second);
    reserved().erase(found);
    return ACL_SUCCESS;
}

aclError aclrtMallocPhysical(aclrtDrvMemHandle* handle, size_t bytes, const aclrtPhysicalMemProp*, uint64_t) {
    const int device = current_device();
    if (!hold(device, bytes)) return ACL_ERROR_RT_MEMORY_ALLOCATION;
    const int file = memfd_create("simulated-hbm", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, static_cast<off_t>(bytes))) {
        if (file >= 0) close(file);
        release(device, bytes);
        return ACL_ERROR_RT_MEMORY_ALLOCATION;
    }
    *handle = reinterpret_cast<aclrtDrvMemHandle>(new Physical{file, device, bytes});
    return ACL_SUCCESS;
}

aclError aclrtFreePhysical(aclrtDrvMemHandle handle) {
    auto* const physical = reinterpret_cast<Physical*>(handle);
    release(physical->device, physical->bytes);
    close(physical->file);
    delete physical;
    return ACL_SUCCESS;
}

aclError aclrtMapMem(void* place, size_t bytes, size_t offset, aclrtDrvMemHandle handle, uint64_t) {
    const auto* const physical = reinterpret_cast<Physical*>(handle);
    void* const at = mmap(place, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, physical->file,
                          static_cast<off_t>(offset));
    if (at == MAP_FAILED) return ACL_ERROR_RT_MEMORY_ALLOCATION;
    std::lock_guard<std::mutex> guard(mutex);
    mapped()[place] = bytes;
    return ACL_SUCCESS;
}

aclError aclrtUnmapMem(void* place) {
    std::lock_guard<std::mutex> guard(mutex);
    auto found = mapped().find(place);
    if (found == mapped().end()) return ACL_ERROR_RT_PARAM_INVALID;
    nobody_may_touch(place, found->second, MAP_FIXED);
    mapped().erase(found);
    return ACL_SUCCESS;
}

aclError aclrtMemGetAllocationGranularity(aclrtPhysicalMemProp*, aclrtMemGranularityOptions, size_t* grain) {
    *grain = 2u << 20;
    return ACL_SUCCESS;
}

}  // extern "C"
