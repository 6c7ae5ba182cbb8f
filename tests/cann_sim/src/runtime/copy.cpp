// Copies and fills.  As on a device, what lies in pageable host memory is taken, or given back, before the call returns;
// with pinned memory the call returns at once and the stream does it.
#include <cstring>
#include <memory>
#include <vector>

#include "memory.h"
#include "stream.h"

namespace {

using namespace sim;

void copy_in_order(Stream* stream, void* to, const void* from, size_t bytes) {
    push(stream, {"MemcpyAsync", [to, from, bytes] { std::memmove(to, from, bytes); }});
}

aclError copy_async(void* to, size_t room, const void* from, size_t bytes, aclrtMemcpyKind kind, Stream* stream) {
    if (bytes > room) return ACL_ERROR_RT_PARAM_INVALID;
    if (kind == ACL_MEMCPY_HOST_TO_DEVICE && !is_pinned(from)) {
        const auto* const begin = static_cast<const char*>(from);
        const auto taken = std::make_shared<std::vector<char>>(begin, begin + bytes);
        push(stream, {"MemcpyAsync", [to, taken] { std::memcpy(to, taken->data(), taken->size()); }});
        return ACL_SUCCESS;
    }
    copy_in_order(stream, to, from, bytes);
    if (kind == ACL_MEMCPY_DEVICE_TO_HOST && !is_pinned(to)) wait_for_stream(stream);
    return ACL_SUCCESS;
}

}  // namespace

extern "C" {

aclError aclrtMemcpyAsync(void* to, size_t room, const void* from, size_t bytes, aclrtMemcpyKind kind,
                          aclrtStream stream) {
    return copy_async(to, room, from, bytes, kind, stream_of(stream));
}

aclError aclrtMemcpyAsyncWithCondition(void* to, size_t room, const void* from, size_t bytes, aclrtMemcpyKind kind,
                                       aclrtStream stream) {
    return copy_async(to, room, from, bytes, kind, stream_of(stream));
}

aclError aclrtMemcpy(void* to, size_t room, const void* from, size_t bytes, aclrtMemcpyKind) {
    if (bytes > room) return ACL_ERROR_RT_PARAM_INVALID;
    const int device = current_device();
    wait_for_device(device);
    if (failure_of(device)) return tell_failed_wait("rtMemcpy", device);
    std::memmove(to, from, bytes);
    return ACL_SUCCESS;
}

aclError aclrtMemsetAsync(void* place, size_t room, int32_t value, size_t bytes, aclrtStream stream) {
    if (bytes > room) return ACL_ERROR_RT_PARAM_INVALID;
    push(stream_of(stream), {"MemsetAsync", [place, value, bytes] { std::memset(place, value, bytes); }});
    return ACL_SUCCESS;
}

aclError aclrtMemset(void* place, size_t room, int32_t value, size_t bytes) {
    if (bytes > room) return ACL_ERROR_RT_PARAM_INVALID;
    wait_for_device(current_device());
    std::memset(place, value, bytes);
    return ACL_SUCCESS;
}

}  // extern "C"
