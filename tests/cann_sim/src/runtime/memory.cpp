// Memory of the devices and pinned memory of the host: both lie in host memory, only the first is counted.
#include "memory.h"

#include <cstdlib>
#include <map>
#include <mutex>

namespace sim {
namespace {

// What aclrtMalloc rounds up to.  torch_npu asks for multiples of it and more, so this rarely changes anything.
constexpr size_t GRAIN = 512;

struct Block {
    size_t bytes;
    int device;
};

std::mutex mutex;
std::map<char*, Block>& blocks() {
    static auto* const all = new std::map<char*, Block>;
    return *all;
}
std::map<char*, size_t>& pinned() {
    static auto* const all = new std::map<char*, size_t>;
    return *all;
}

size_t rounded(size_t bytes) { return (bytes + GRAIN - 1) / GRAIN * GRAIN; }

}  // namespace

bool is_pinned(const void* place) {
    std::lock_guard<std::mutex> guard(mutex);
    auto* const at = static_cast<char*>(const_cast<void*>(place));
    auto next = pinned().upper_bound(at);
    if (next == pinned().begin()) return false;
    --next;
    return at < next->first + next->second;
}

}  // namespace sim

using namespace sim;

extern "C" {

aclError aclrtMalloc(void** place, size_t bytes, aclrtMemMallocPolicy) {
    if (!place || !bytes) return ACL_ERROR_RT_PARAM_INVALID;
    const Block block{rounded(bytes), current_device()};
    if (!hold(block.device, block.bytes)) return ACL_ERROR_RT_MEMORY_ALLOCATION;
    auto* const found = static_cast<char*>(std::aligned_alloc(GRAIN, block.bytes));
    if (!found) {
        release(block.device, block.bytes);
        return ACL_ERROR_RT_MEMORY_ALLOCATION;
    }
    std::lock_guard<std::mutex> guard(mutex);
    blocks()[found] = block;
    *place = found;
    return ACL_SUCCESS;
}

aclError aclrtMallocAlign32(void** place, size_t bytes, aclrtMemMallocPolicy policy) {
    return aclrtMalloc(place, bytes, policy);
}

aclError aclrtFree(void* place) {
    Block block;
    {
        std::lock_guard<std::mutex> guard(mutex);
        auto found = blocks().find(static_cast<char*>(place));
        if (found == blocks().end()) return ACL_ERROR_RT_PARAM_INVALID;
        block = found->second;
        blocks().erase(found);
    }
    release(block.device, block.bytes);
    // What still runs on the device may use it, and must not meet memory that is gone.
    run_when_idle(block.device, [place] { std::free(place); });
    return ACL_SUCCESS;
}

aclError aclrtGetMemInfo(aclrtMemAttr, size_t* free_bytes, size_t* total_bytes) {
    const uint64_t used = held_bytes(current_device());
    *total_bytes = settings().hbm_bytes;
    *free_bytes = used > *total_bytes ? 0 : *total_bytes - used;
    return ACL_SUCCESS;
}

aclError aclrtMallocHost(void** place, size_t bytes) {
    if (!place || !bytes) return ACL_ERROR_RT_PARAM_INVALID;
    auto* const found = static_cast<char*>(std::aligned_alloc(GRAIN, rounded(bytes)));
    if (!found) return ACL_ERROR_RT_MEMORY_ALLOCATION;
    std::lock_guard<std::mutex> guard(mutex);
    pinned()[found] = rounded(bytes);
    *place = found;
    return ACL_SUCCESS;
}

aclError aclrtFreeHost(void* place) {
    std::lock_guard<std::mutex> guard(mutex);
    if (!pinned().erase(static_cast<char*>(place))) return ACL_ERROR_RT_PARAM_INVALID;
    std::free(place);
    return ACL_SUCCESS;
}

}  // extern "C"
