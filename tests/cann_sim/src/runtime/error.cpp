// Failures of devices, and the texts of errors.
//
// The grammar is that of CANN 8.0 ("execute failed, reason=[…]"; since 8.5: "execution failed, reason=…").
// Line numbers, cores, addresses and ids are invented; so is that exactly the first wait after a failure
// tells what the device reported.
#include "error.h"

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <mutex>
#include <sstream>
#include <utility>

namespace sim {
namespace {

constexpr int LINE = 1;  // of a source file of CANN that we do not have

struct Kind {
    int code;            // as in rt_error_codes.h
    const char* reason;  // the word in reason=[…]
    int inner_code;      // InnerCode of the log, from the source of CANN's runtime
    int task_code;       // retCode of the task
    const char* core;    // which core is to blame; null: none
};

constexpr Kind KINDS[] = {
    {ACL_ERROR_RT_MODEL_EXECUTE, "the model stream execute failed", 0x7150050, 0x91,
     "fftsplus aivector error"},
    {ACL_ERROR_RT_AICORE_TIMEOUT, "aicore timeout", 0x7150025, 0x25, nullptr},
    {ACL_ERROR_RT_AICORE_EXCEPTION, "aicore exception", 0x7150026, 0x26, "aicore error"},
    {ACL_ERROR_RT_VECTOR_CORE_TIMEOUT, "vector core timeout", 0x715005d, 0x30, nullptr},
    {ACL_ERROR_RT_VECTOR_CORE_EXCEPTION, "vector core exception", 0x715005e, 0x31, "aivec error"},
    {ACL_ERROR_RT_HBM_MULTI_BIT_ECC_ERROR, "hbm Multi-bit ECC error", 0x7010028, 0, nullptr},
};

const Kind* kind_of(int code) {
    for (const Kind& kind : KINDS)
        if (kind.code == code) return &kind;
    return nullptr;
}

struct Failure {
    int code;
    std::string op;
    int device;
    int stream;
    int number;  // counted in this process
};

std::mutex mutex;
std::vector<Line> reports[MAX_DEVICES];  // of the last failure; empty once a wait has told it
std::atomic<int> codes[MAX_DEVICES];
std::atomic<int> failure_count;
std::atomic<int> heal_count;

thread_local std::string recent;
thread_local int last_code = ACL_SUCCESS;
thread_local int last_code_of_heal = 0;

template <class... Parts>
std::string joined(const Parts&... parts) {
    std::ostringstream all;
    (all << ... << parts);
    return all.str();
}

std::string hex(unsigned long long value) {
    char text[32];
    std::snprintf(text, sizeof text, "%#llx", value);
    return text;
}

// aclnnRelu runs kernels of names like Relu_0_mix_aiv.
std::string kernel_name(const std::string& op) {
    return (op.rfind("aclnn", 0) == 0 ? op.substr(5) : op) + "_0_mix_aiv";
}

std::string core_text(const Failure& failure, const Kind& kind) {
    return joined(
        "The error from device(chipId:", failure.device, ", dieId:0), serial number is ", failure.number,
        ", there is an exception of ", kind.core, ", core id is ", 7 + failure.number % 8,
        ", error code = 0x800000, dump info: pc start: ", hex(0x120000001000 + 0x100 * failure.stream),
        ", current: ", hex(0x120000001040 + 0x100 * failure.stream),
        ", vec error info: 0x11, mte error info: 0x2000022, ifu error info: 0x33000, ccu error info: 0x44, "
        "cube error info: 0, biu error info: 0, aic error mask: 0x55, para base: 0x120000066000.");
}

// What the device reports, in the order in which it does.
std::vector<Line> device_lines(const Failure& failure) {
    const Kind& kind = *kind_of(failure.code);
    if (kind.code == ACL_ERROR_RT_HBM_MULTI_BIT_ECC_ERROR)
        // The blank after "us=" is what torch_npu looks for; the text in CANN 8.5 has none.
        return {{"ProcHBMRas", "runtime.cc",
                 joined("HBM MULTI BIT ECC, Uncorrectable ECC, device_id=", failure.device,
                        ", event_id=0x80e01801, time us= ", now_ns() / 1000, ".")}};
    std::vector<Line> lines;
    if (kind.core) {
        lines.push_back({"ProcessStarsCoreErrorInfo", "device_error_proc.cc", core_text(failure, kind)});
        lines.push_back(
            {"ProcessStarsCoreErrorInfo", "device_error_proc.cc",
             "The extend info: errcode:(0x800000, 0, 0) errorStr: The DDR address of the MTE instruction is "
             "out of range. fixp_error0 info: 0x2000022, fixp_error1 info: 0, fsmId:0, tslot:0, thread:0, "
             "ctxid:0, blk:0, sublk:0, subErrType:4."});
    }
    lines.push_back(
        {"PreCheckTaskErr", "davinci_kernel_task.cc",
         joined("Kernel task happen error, retCode=", hex(kind.task_code), ", [", kind.reason, "].")});
    lines.push_back({"PrintErrorInfoForDavinciTask", "davinci_kernel_task.cc",
                     joined("[DFX_INFO]Aicore kernel execute failed, device_id=", failure.device,
                            ", stream_id=", failure.stream, ", report_stream_id=", failure.stream,
                            ", task_id=", failure.number, ", flip_num=0, fault kernel_name=",
                            kernel_name(failure.op), ", fault kernel info ext=none, program id=1, hash=1.")});
    return lines;
}

std::vector<Line> wait_lines(const std::string& api, const Kind& kind) {
    const char* const what = api == "rtStreamSynchronize"   ? "synchronize stream"
                             : api == "rtDeviceSynchronize" ? "wait for compute device to finish"
                             : api == "rtEventSynchronize"  ? "synchronize event"
                                                            : "call runtime";
    return {{"FuncErrorReason", "error_message_manage.cc",
             joined(api, " execute failed, reason=[", kind.reason, "]")},
            {"ReportCallError", "log_inner.cpp", joined(what, " failed, runtime result = ", kind.code)}};
}

const char* module_code(int code) {
    return code == ACL_ERROR_RT_HBM_MULTI_BIT_ECC_ERROR ? "EL9999" : "EZ9999";
}

void log(const Line& line) {
    plog(Level::ERROR, "RUNTIME", line.file, LINE, line.function + ":" + line.text);
}

}  // namespace

bool is_device_failure(int code) { return kind_of(code); }

std::string inner_error(const char* code, const std::vector<Line>& lines) {
    std::ostringstream text;
    text << code << ": Inner Error!\n"
         << code << "[PID: " << getpid() << "] " << now_text() << " (" << code << "):  ";
    bool first = true;
    for (const Line& line : lines) {
        text << (first ? "" : "       ") << line.text << "[FUNC:" << line.function << "][FILE:" << line.file
             << "][LINE:" << LINE << "]\n"
             << (first ? "        TraceBack (most recent call last):\n" : "");
        first = false;
    }
    return text.str();
}

std::string refused_text(int code, const std::string& op, int device) {
    if (const Kind* const kind = kind_of(code)) {
        std::vector<Line> lines = device_lines({code, op, device, 0, ++failure_count});
        lines.push_back(wait_lines("rtKernelLaunchWithHandle", *kind).front());
        return inner_error(module_code(code), lines);
    }
    return inner_error("EZ9999", {{"ReportInnerError", "log_inner.cpp",
                                   joined("[cann_sim] the launch of ", op, " was refused, errno:", code)}});
}

void fail_device(int device, int code, const std::string& op, int stream) {
    std::lock_guard<std::mutex> guard(mutex);
    if (codes[device]) return;
    reports[device] = device_lines({code, op, device, stream, ++failure_count});
    for (const Line& line : reports[device]) log(line);
    codes[device] = code;
}

int failure_of(int device) { return codes[device]; }

void heal_devices() {
    std::lock_guard<std::mutex> guard(mutex);
    for (auto& code : codes) code = ACL_SUCCESS;
    heal_count++;
}

int tell_failed_wait(const char* api, int device) {
    std::lock_guard<std::mutex> guard(mutex);
    const int code = codes[device];
    const Kind* const kind = kind_of(code);
    if (!kind) return code;
    const std::vector<Line> waiting = wait_lines(api, *kind);
    plog(Level::ERROR, "RUNTIME", "api_c.cc", LINE,
         joined(api, ":ErrCode=", code, ", desc=[", kind->reason, "], InnerCode=", hex(kind->inner_code)));
    log(waiting.front());
    std::vector<Line> all = std::exchange(reports[device], {});
    const char* const module = all.empty() ? "EE9999" : module_code(code);
    all.insert(all.end(), waiting.begin(), waiting.end());
    set_recent_error(inner_error(module, all));
    remember_code(code);
    return code;
}

void set_recent_error(const std::string& text) { recent = text; }

void remember_code(int code) {
    last_code = code;
    last_code_of_heal = heal_count;
}

}  // namespace sim

using namespace sim;

extern "C" {

const char* aclGetRecentErrMsg() {
    thread_local std::string given;
    given = std::exchange(recent, {});
    return given.empty() ? nullptr : given.c_str();
}

aclError aclrtPeekAtLastError(aclrtLastErrLevel) {
    return last_code_of_heal == heal_count ? last_code : ACL_SUCCESS;
}

aclError aclrtGetLastError(aclrtLastErrLevel level) {
    const aclError found = aclrtPeekAtLastError(level);
    last_code = ACL_SUCCESS;
    return found;
}

// After a memory error torch_npu asks which places are broken.  Nobody here has seen an answer: none is.
aclError aclrtGetMemUceInfo(int32_t, aclrtMemUceInfo*, size_t, size_t* count) {
    *count = 0;
    return ACL_SUCCESS;
}

}  // extern "C"
