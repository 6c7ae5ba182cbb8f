// What the parts of the simulated CANN know of each other.  The types of CANN itself come from the headers in the wheel
// of torch_npu, so that a prototype written wrongly here does not compile.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "acl/acl.h"

namespace sim {

// settings.cpp: what was chosen in the environment, read once.
struct Settings {
    std::string soc;          // CANN_SIM_SOC: Ascend910B3 (default), Ascend910A, …
    int devices;              // CANN_SIM_DEVICES: 1
    uint64_t hbm_bytes;       // CANN_SIM_HBM_MIB: 4096, of each device
    uint64_t context_bytes;   // CANN_SIM_CONTEXT_MIB: 64, what a process takes of a device it opens
    std::string ledger;       // CANN_SIM_LEDGER: a file shared by processes that share the devices; empty: a private one
    std::string faults;       // CANN_SIM_FAULTS: see fault.cpp
    std::string costs;        // CANN_SIM_COSTS: see cost.cpp
};
const Settings& settings();

// device.cpp: each thread has a current device; a new thread starts at 0.
constexpr int MAX_DEVICES = 16;
int current_device();

// ledger.cpp: how much of each device's memory is held, and by whom.
bool hold(int device, uint64_t bytes);  // false: there is not enough left
void release(int device, uint64_t bytes);
uint64_t held_bytes(int device);        // by all living processes that share the ledger

// stream.cpp: a stream is a thread that does its work in order.
struct Stream;
struct Work {
    std::string name;           // aclnnAdd, MemcpyAsync, …
    std::function<void()> run;  // on the stream's thread
    bool kernel = false;        // a kernel is timed, recorded by msPTI, subject to faults, and dropped once the device has failed
};
Stream* stream_of(aclrtStream handle);  // null: the default stream of the current device
int device_of(const Stream* stream);
int id_of(const Stream* stream);
void push(Stream* stream, Work work);
void run_when_idle(int device, std::function<void()> done);  // once each stream has done what it has by now

// cost.cpp: how long a kernel takes on the simulated device.  0: as long as it takes on the CPU.
uint64_t cost_ns(const std::string& op);

// fault.cpp: what was asked to go wrong, and when.
struct Fault {
    enum Kind { NONE, EXCEPTION, HANG } kind = NONE;
    int code = 0;  // of the wait that will tell: 507035 vector core exception, 507015 aicore exception, …
};
Fault on_run(const std::string& op, int device, int stream);  // asked once for each kernel, as it starts on the device
int on_launch(const std::string& op);   // nonzero: aclnnX itself returns this; its text is set
int on_prepare(const std::string& op);  // nonzero: aclnnXGetWorkspaceSize returns this; its text is set
void wait_while_hanging(int device);      // on the stream's thread, until "release" is asked for
int sync_timeout_code();                // of a wait that was given a time and ran out of it

// error.cpp: a device fails for good; each thread has the text of its own last error.
void fail_device(int device, int code, const std::string& op, int stream);
int failure_of(int device);                       // 0: none
void heal_devices();                              // for tests only: no real device heals so
int tell_failed_wait(const char* api, int device);  // sets this thread's text, writes the log; returns the code
void set_recent_error(const std::string& text);

// plog.cpp: the log files of CANN.
enum class Level { DEBUG, INFO, WARNING, ERROR };
void plog(Level level, const char* module, const char* file, int line, const std::string& text);

// overflow.cpp: saturation mode, and its sticky register, one a device.
bool saturates();
void set_overflow(int device);
bool overflowed(int device);
void clear_overflow(int device);

// mspti.cpp: one record a kernel.  Nanoseconds of CLOCK_REALTIME.
void record_kernel(const std::string& op, int device, int stream, uint64_t start_ns, uint64_t end_ns);
uint64_t now_ns();

}  // namespace sim
