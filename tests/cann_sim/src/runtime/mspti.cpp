// msPTI: one record a kernel, kept until the client asks for them.  Layouts and names as in the public mspti_activity.h,
// which is not in the wheel.  Records of API calls, copies, memory, communication and external correlation are not made.
#include <time.h>

#include <atomic>
#include <deque>
#include <mutex>
#include <set>

#include "sim.h"

namespace sim {
namespace {

enum Result { SUCCESS = 0, INVALID_PARAMETER = 1, MULTIPLE_SUBSCRIBERS = 2, MAX_LIMIT_REACHED = 3 };
constexpr uint32_t KERNEL = 2;
constexpr uint32_t KINDS = 13;

struct __attribute__((packed, aligned(8))) KernelRecord {
    uint32_t kind;
    uint64_t start_ns;
    uint64_t end_ns;
    uint32_t device;
    uint32_t stream;
    uint64_t correlation;
    const char* type;
    const char* name;
};

// As many as fit the 32 buffers of 8 MiB that the real one has; later ones are dropped, as there.
constexpr size_t MOST = (256u << 20) / sizeof(KernelRecord);

using RequestBuffer = void (*)(uint8_t** buffer, size_t* bytes, size_t* most_records);
using CompleteBuffer = void (*)(uint8_t* buffer, size_t bytes, size_t valid_bytes);

std::mutex mutex;
std::atomic<bool> kernels_on{false};
std::atomic<bool> subscribed{false};
RequestBuffer request_buffer = nullptr;
CompleteBuffer complete_buffer = nullptr;
uint64_t correlation = 0;

std::deque<KernelRecord>& kept() {
    static auto* const all = new std::deque<KernelRecord>;
    return *all;
}

// Records point at names for as long as the process lives.
const char* lasting(const std::string& text) {
    static auto* const all = new std::set<std::string>;
    return all->insert(text).first->c_str();
}

// On a device a kernel is named after the aclnn call, the operator and the kernel; the last two are made of the first
// here.  The type is the kind of core: matrix work runs on the cube cores, fused attention on both, the rest on vectors.
std::string kernel_name(const std::string& op) {
    const std::string bare = op.rfind("aclnn", 0) == 0 ? op.substr(5) : op;
    return op + "_" + bare + "AiCore_" + bare;
}

const char* kernel_type(const std::string& op) {
    for (const char* cube : {"Matmul", "MatMul", "Mm", "mm", "Convolution", "Dot", "Mv"})
        if (op.find(cube) != std::string::npos) return "KERNEL_AICORE";
    return op.find("FlashAttention") != std::string::npos ? "KERNEL_MIX_AIC" : "KERNEL_AIVEC";
}

}  // namespace

uint64_t now_ns() {
    timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1000000000 + static_cast<uint64_t>(now.tv_nsec);
}

void record_kernel(const std::string& op, int device, int stream, uint64_t start_ns, uint64_t end_ns) {
    if (!kernels_on) return;
    std::lock_guard<std::mutex> guard(mutex);
    if (kept().size() >= MOST) return;
    kept().push_back({KERNEL, start_ns, end_ns, static_cast<uint32_t>(device), static_cast<uint32_t>(stream),
                      ++correlation, lasting(kernel_type(op)), lasting(kernel_name(op))});
}

}  // namespace sim

using namespace sim;

extern "C" {

int msptiSubscribe(void** subscriber, void*, void*) {
    if (subscribed.exchange(true)) return MULTIPLE_SUBSCRIBERS;
    *subscriber = &subscribed;
    return SUCCESS;
}

int msptiUnsubscribe(void* subscriber) {
    if (subscriber != &subscribed) return INVALID_PARAMETER;
    subscribed = false;
    return SUCCESS;
}

int msptiActivityRegisterCallbacks(RequestBuffer request, CompleteBuffer complete) {
    if (!request || !complete) return INVALID_PARAMETER;
    std::lock_guard<std::mutex> guard(mutex);
    request_buffer = request;
    complete_buffer = complete;
    return SUCCESS;
}

int msptiActivityEnable(uint32_t kind) {
    if (!kind || kind >= KINDS) return INVALID_PARAMETER;
    if (kind == KERNEL) kernels_on = true;
    return SUCCESS;
}

int msptiActivityDisable(uint32_t kind) {
    if (!kind || kind >= KINDS) return INVALID_PARAMETER;
    if (kind == KERNEL) kernels_on = false;
    return SUCCESS;
}

bool msptiActivityIsEnabled(uint32_t kind) { return kind == KERNEL && kernels_on; }

int msptiActivityFlushAll(uint32_t) {
    std::deque<KernelRecord> records;
    RequestBuffer request;
    CompleteBuffer complete;
    {
        std::lock_guard<std::mutex> guard(mutex);
        if (!request_buffer) return INVALID_PARAMETER;
        records.swap(kept());
        request = request_buffer;
        complete = complete_buffer;
    }
    while (!records.empty()) {
        uint8_t* buffer = nullptr;
        size_t bytes = 0;
        size_t most = 0;
        request(&buffer, &bytes, &most);
        const size_t room = bytes / sizeof(KernelRecord);
        if (!buffer || !room) return MAX_LIMIT_REACHED;
        size_t count = 0;
        for (; count < room && (!most || count < most) && !records.empty(); count++) {
            reinterpret_cast<KernelRecord*>(buffer)[count] = records.front();
            records.pop_front();
        }
        complete(buffer, bytes, count * sizeof(KernelRecord));
    }
    return SUCCESS;
}

int msptiActivityGetNextRecord(uint8_t* buffer, size_t valid_bytes, KernelRecord** record) {
    auto* const next = *record ? *record + 1 : reinterpret_cast<KernelRecord*>(buffer);
    if (reinterpret_cast<uint8_t*>(next + 1) > buffer + valid_bytes) return MAX_LIMIT_REACHED;
    *record = next;
    return SUCCESS;
}

int msptiActivityPushExternalCorrelationId(uint32_t, uint64_t) { return SUCCESS; }

int msptiActivityPopExternalCorrelationId(uint32_t, uint64_t* last) {
    if (last) *last = 0;
    return SUCCESS;
}

}  // extern "C"
