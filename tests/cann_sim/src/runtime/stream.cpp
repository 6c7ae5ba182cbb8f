// Streams.  Each has a thread that does its work in order, so that launches return at once, waits take as long as the work
// before them, and two streams really run at the same time.
#include "stream.h"

#include <pthread.h>
#include <time.h>

#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

namespace sim {

struct Stream {
    int device;
    int id;
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<Work> waiting;
    uint64_t pushed = 0;
    uint64_t done = 0;
    bool has_thread = false;
    bool closed = false;
};

namespace {

std::mutex registry_mutex;
// Streams are never deleted: they are few, and their threads may outlive the exit of main.
std::vector<Stream*>& registry() {
    static auto* const all = new std::vector<Stream*>;
    return *all;
}

void finish_before_exit() {
    for (int device = 0; device < settings().devices; device++) wait_for_device(device, 2000);
}

Stream* create(int device) {
    std::lock_guard<std::mutex> guard(registry_mutex);
    if (registry().empty()) {
        // Registered after torch's own, it runs before them: a kernel must not meet a torch that is torn down.
        std::atexit(finish_before_exit);
    }
    auto* const stream = new Stream;
    stream->device = device;
    stream->id = static_cast<int>(registry().size());
    registry().push_back(stream);
    return stream;
}

std::vector<Stream*> streams_of_device(int device) {
    std::lock_guard<std::mutex> guard(registry_mutex);
    std::vector<Stream*> found;
    for (Stream* stream : registry())
        if (stream->device == device && !stream->closed) found.push_back(stream);
    return found;
}

void sleep_until(uint64_t wall_ns) {
    const timespec end{static_cast<time_t>(wall_ns / 1000000000), static_cast<long>(wall_ns % 1000000000)};
    while (clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &end, nullptr)) continue;
}

void run_kernel(Stream* stream, Work& work) {
    if (failure_of(stream->device)) return;
    const Fault fault = on_run(work.name, stream->device, stream->id);
    if (fault.kind == Fault::EXCEPTION) {
        fail_device(stream->device, fault.code, work.name, stream->id);
        return;
    }
    if (fault.kind == Fault::HANG) wait_while_hanging(stream->device);
    const uint64_t start = now_ns();
    const uint64_t cost = cost_ns(work.name);
    // What it writes appears when its time is over; and the record says the cost that was asked for, to the nanosecond.
    if (cost) sleep_until(start + cost);
    work.run();
    record_kernel(work.name, stream->device, stream->id, start, cost ? start + cost : now_ns());
}

void work_for_ever(Stream* stream) {
    pthread_setname_np(pthread_self(), ("npu-stream-" + std::to_string(stream->id)).c_str());
    std::unique_lock<std::mutex> lock(stream->mutex);
    for (;;) {
        stream->changed.wait(lock, [&] { return !stream->waiting.empty() || stream->closed; });
        if (stream->waiting.empty()) return;
        Work work = std::move(stream->waiting.front());
        stream->waiting.pop_front();
        lock.unlock();
        if (work.kernel)
            run_kernel(stream, work);
        else
            work.run();
        work = Work{};  // what it holds goes before it counts as done
        lock.lock();
        stream->done++;
        stream->changed.notify_all();
    }
}

}  // namespace

Stream* stream_of(aclrtStream handle) {
    if (handle) return static_cast<Stream*>(handle);
    static Stream* defaults[MAX_DEVICES];
    static std::mutex mutex;
    std::lock_guard<std::mutex> guard(mutex);
    Stream*& found = defaults[current_device()];
    if (!found) found = create(current_device());
    return found;
}

int device_of(const Stream* stream) { return stream->device; }
int id_of(const Stream* stream) { return stream->id; }

void push(Stream* stream, Work work) {
    std::lock_guard<std::mutex> guard(stream->mutex);
    if (!stream->has_thread) {
        std::thread(work_for_ever, stream).detach();
        stream->has_thread = true;
    }
    stream->waiting.push_back(std::move(work));
    stream->pushed++;
    stream->changed.notify_all();
}

bool wait_for_stream(Stream* stream, int timeout_ms) {
    std::unique_lock<std::mutex> lock(stream->mutex);
    const uint64_t last = stream->pushed;
    const auto reached = [&] { return stream->done >= last; };
    if (timeout_ms > 0) return stream->changed.wait_for(lock, std::chrono::milliseconds(timeout_ms), reached);
    stream->changed.wait(lock, reached);
    return true;
}

bool wait_for_device(int device, int timeout_ms) {
    bool all = true;
    for (Stream* stream : streams_of_device(device)) all = wait_for_stream(stream, timeout_ms) && all;
    return all;
}

bool is_idle(Stream* stream) {
    std::lock_guard<std::mutex> guard(stream->mutex);
    return stream->done == stream->pushed;
}

void run_when_idle(int device, std::function<void()> done) {
    // The last stream to let go of it runs it.
    const std::shared_ptr<void> last(nullptr, [done = std::move(done)](void*) { done(); });
    for (Stream* stream : streams_of_device(device))
        if (!is_idle(stream)) push(stream, {"Release", [last] {}});
}

}  // namespace sim

using namespace sim;

namespace {

aclError synchronize(Stream* stream, int timeout_ms) {
    if (!wait_for_stream(stream, timeout_ms)) return sync_timeout_code();
    return failure_of(stream->device) ? tell_failed_wait("rtStreamSynchronize", stream->device) : ACL_SUCCESS;
}

aclError synchronize_device(int timeout_ms) {
    const int device = current_device();
    if (!wait_for_device(device, timeout_ms)) return sync_timeout_code();
    return failure_of(device) ? tell_failed_wait("rtDeviceSynchronize", device) : ACL_SUCCESS;
}

}  // namespace

extern "C" {

aclError aclrtCreateStreamWithConfig(aclrtStream* stream, uint32_t, uint32_t) {
    *stream = create(current_device());
    return ACL_SUCCESS;
}

aclError aclrtCreateStream(aclrtStream* stream) { return aclrtCreateStreamWithConfig(stream, 0, 0); }

aclError aclrtDestroyStream(aclrtStream handle) {
    auto* const stream = static_cast<Stream*>(handle);
    if (!stream) return ACL_ERROR_RT_PARAM_INVALID;
    std::lock_guard<std::mutex> guard(stream->mutex);
    stream->closed = true;
    stream->changed.notify_all();
    return ACL_SUCCESS;
}

aclError aclrtDestroyStreamForce(aclrtStream stream) { return aclrtDestroyStream(stream); }

aclError aclrtSynchronizeStream(aclrtStream stream) { return synchronize(stream_of(stream), -1); }

aclError aclrtSynchronizeStreamWithTimeout(aclrtStream stream, int32_t timeout_ms) {
    return synchronize(stream_of(stream), timeout_ms);
}

aclError aclrtSynchronizeDevice() { return synchronize_device(-1); }

aclError aclrtSynchronizeDeviceWithTimeout(int32_t timeout_ms) { return synchronize_device(timeout_ms); }

aclError aclrtStreamQuery(aclrtStream handle, aclrtStreamStatus* status) {
    Stream* const stream = stream_of(handle);
    *status = is_idle(stream) ? ACL_STREAM_STATUS_COMPLETE : ACL_STREAM_STATUS_NOT_READY;
    return failure_of(stream->device) ? tell_failed_wait("rtStreamQuery", stream->device) : ACL_SUCCESS;
}

aclError aclrtStreamGetId(aclrtStream handle, int32_t* id) {
    *id = stream_of(handle)->id;
    return ACL_SUCCESS;
}

}  // extern "C"
