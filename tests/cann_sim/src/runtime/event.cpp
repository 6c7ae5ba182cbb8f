// Events: recording one is a piece of work in a stream, and it is reached when that stream has come so far.
#include <condition_variable>
#include <memory>
#include <mutex>

#include "stream.h"

namespace {

using namespace sim;

struct Event {
    std::mutex mutex;
    std::condition_variable changed;
    uint64_t recorded = 0;  // how often it was asked to be recorded
    uint64_t reached = 0;   // up to which of these
    uint64_t reached_ns = 0;
    int device = 0;

    bool is_complete() {
        std::lock_guard<std::mutex> guard(mutex);
        return reached == recorded;
    }

    void reach(uint64_t number) {
        std::lock_guard<std::mutex> guard(mutex);
        reached = number;
        reached_ns = now_ns();
        changed.notify_all();
    }

    bool wait(uint64_t number, int timeout_ms = -1) {
        std::unique_lock<std::mutex> lock(mutex);
        const auto there = [&] { return reached >= number; };
        if (timeout_ms > 0) return changed.wait_for(lock, std::chrono::milliseconds(timeout_ms), there);
        changed.wait(lock, there);
        return true;
    }
};

// The handle owns a share: work that still names the event may outlive its destruction.
using Handle = std::shared_ptr<Event>;
Handle& of(aclrtEvent handle) { return *static_cast<Handle*>(handle); }

aclError synchronize(aclrtEvent handle, int timeout_ms) {
    const Handle event = of(handle);
    uint64_t number;
    {
        std::lock_guard<std::mutex> guard(event->mutex);
        number = event->recorded;
    }
    if (!event->wait(number, timeout_ms)) return sync_timeout_code();
    return failure_of(event->device) ? tell_failed_wait("rtEventSynchronize", event->device) : ACL_SUCCESS;
}

}  // namespace

extern "C" {

aclError aclrtCreateEventExWithFlag(aclrtEvent* event, uint32_t) {
    *event = new Handle(std::make_shared<Event>());
    return ACL_SUCCESS;
}

aclError aclrtCreateEventWithFlag(aclrtEvent* event, uint32_t flag) { return aclrtCreateEventExWithFlag(event, flag); }

aclError aclrtCreateEvent(aclrtEvent* event) { return aclrtCreateEventExWithFlag(event, 0); }

aclError aclrtDestroyEvent(aclrtEvent event) {
    delete &of(event);
    return ACL_SUCCESS;
}

aclError aclrtRecordEvent(aclrtEvent handle, aclrtStream stream_handle) {
    Stream* const stream = stream_of(stream_handle);
    const Handle event = of(handle);
    uint64_t number;
    {
        std::lock_guard<std::mutex> guard(event->mutex);
        number = ++event->recorded;
        event->device = device_of(stream);
    }
    push(stream, {"EventRecord", [event, number] { event->reach(number); }});
    return ACL_SUCCESS;
}

// Only the state that a later wait sees would change, and torch_npu records anew before it waits.
aclError aclrtResetEvent(aclrtEvent, aclrtStream) { return ACL_SUCCESS; }

aclError aclrtStreamWaitEvent(aclrtStream stream, aclrtEvent handle) {
    const Handle event = of(handle);
    uint64_t number;
    {
        std::lock_guard<std::mutex> guard(event->mutex);
        number = event->recorded;
    }
    push(stream_of(stream), {"EventWait", [event, number] { event->wait(number); }});
    return ACL_SUCCESS;
}

aclError aclrtSynchronizeEvent(aclrtEvent event) { return synchronize(event, -1); }

aclError aclrtSynchronizeEventWithTimeout(aclrtEvent event, int32_t timeout_ms) {
    return synchronize(event, timeout_ms);
}

aclError aclrtQueryEventStatus(aclrtEvent handle, aclrtEventRecordedStatus* status) {
    const Handle event = of(handle);
    *status = event->is_complete() ? ACL_EVENT_RECORDED_STATUS_COMPLETE : ACL_EVENT_RECORDED_STATUS_NOT_READY;
    return failure_of(event->device) ? tell_failed_wait("rtEventQuery", event->device) : ACL_SUCCESS;
}

aclError aclrtQueryEventWaitStatus(aclrtEvent handle, aclrtEventWaitStatus* status) {
    const Handle event = of(handle);
    *status = event->is_complete() ? ACL_EVENT_WAIT_STATUS_COMPLETE : ACL_EVENT_WAIT_STATUS_NOT_READY;
    return ACL_SUCCESS;
}

aclError aclrtEventElapsedTime(float* milliseconds, aclrtEvent start, aclrtEvent end) {
    if (!of(start)->is_complete() || !of(end)->is_complete()) return ACL_ERROR_RT_EVENT_NOT_COMPLETE;
    const int64_t ns = static_cast<int64_t>(of(end)->reached_ns - of(start)->reached_ns);
    *milliseconds = static_cast<float>(ns / 1e6);
    return ACL_SUCCESS;
}

}  // extern "C"
