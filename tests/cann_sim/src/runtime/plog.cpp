// The log of CANN: one file a process, made at its first line.
//
//     [ERROR] RUNTIME(4711,python):2026-01-31-23:59:59.123.456 [api_c.cc:1]4712 rtStreamSynchronize:ErrCode=…
//
// Where it lies, what a line looks like and which variables choose are as in the documentation of CANN and in
// the source of its runtime (hicann/runtime, src/dfx/log).  Of its folders (debug, run, security) only the
// first is used; files are not rotated, and each line goes out at once instead of by a thread.
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <sstream>

#include "error.h"

extern char* __progname;

namespace sim {
namespace {

constexpr int NOTHING = 4;  // ASCEND_GLOBAL_LOG_LEVEL: 0 debug, 1 info, 2 warning, 3 error, 4 nothing

std::string variable(const char* name) {
    const char* const value = std::getenv(name);
    return value ? value : "";
}

int level_in(const std::string& text, int otherwise) {
    return text.size() == 1 && text[0] >= '0' && text[0] <= '0' + NOTHING ? text[0] - '0' : otherwise;
}

// ASCEND_MODULE_LOG_LEVEL=RUNTIME=0:APP=1 goes before ASCEND_GLOBAL_LOG_LEVEL=3.
int least_level(const std::string& module) {
    static const int global = level_in(variable("ASCEND_GLOBAL_LOG_LEVEL"), static_cast<int>(Level::ERROR));
    static const auto* const modules = new std::string(variable("ASCEND_MODULE_LOG_LEVEL"));
    std::istringstream items(*modules);
    for (std::string item; std::getline(items, item, ':');) {
        const size_t at = item.find('=');
        if (at != std::string::npos && item.substr(0, at) == module)
            return level_in(item.substr(at + 1), global);
    }
    return global;
}

// Printed, and not saved.  CANN 9.2 renamed the variable; the new name goes first.
bool to_stdout() {
    static const bool chosen = [] {
        const std::string renamed = variable("ASCEND_LOG_PRINT_TO_STDOUT");
        return (renamed.empty() ? variable("ASCEND_SLOG_PRINT_TO_STDOUT") : renamed) == "1";
    }();
    return chosen;
}

std::string root() {
    if (const std::string path = variable("ASCEND_PROCESS_LOG_PATH"); !path.empty()) return path;
    if (const std::string path = variable("ASCEND_WORK_PATH"); !path.empty()) return path + "/log";
    return variable("HOME") + "/ascend/log";
}

// plog-4711_20260131235959123.log
std::string file_name() {
    std::string digits;
    for (const char c : now_text())
        if (c >= '0' && c <= '9') digits += c;
    return "plog-" + std::to_string(getpid()) + "_" + digits.substr(0, digits.size() - 3) + ".log";
}

// The log must not harm the program: what cannot be written is dropped, and that is said once.
class File {
 public:
    File() {
        // A child gets a file of its own, and must not inherit a lock that a thread of its parent held.
        pthread_atfork([] { the().mutex.lock(); }, [] { the().mutex.unlock(); }, [] { the().start_again(); });
    }

    static File& the() {
        static auto* const file = new File;
        return *file;
    }

    void append(const std::string& line) {
        std::lock_guard<std::mutex> guard(mutex);
        if (descriptor < 0 && !failed) open();
        if (descriptor < 0) return;
        const ssize_t written = ::write(descriptor, line.data(), line.size());
        if (written != static_cast<ssize_t>(line.size())) complain(written < 0 ? errno : ENOSPC);
    }

 private:
    void start_again() {
        if (descriptor >= 0) ::close(descriptor);
        descriptor = -1;
        failed = false;
        mutex.unlock();
    }

    void open() {
        const std::filesystem::path folder = std::filesystem::path(root()) / "debug" / "plog";
        std::error_code refused;
        std::filesystem::create_directories(folder, refused);
        path = folder / file_name();
        descriptor = ::open(path.c_str(), O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0640);
        if (descriptor < 0) complain(errno);
    }

    void complain(int reason) {
        if (!failed)
            std::fprintf(stderr, "[cann_sim] plog: %s: %s; lines are lost\n", path.c_str(),
                         std::strerror(reason));
        failed = true;
    }

    std::mutex mutex;
    std::string path;
    int descriptor = -1;
    bool failed = false;
};

void print(const std::string& line) {
    // Not by stdio: the real one writes to the descriptor, past Python's buffer and C's.
    if (::write(STDOUT_FILENO, line.data(), line.size()) < 0) return;
}

bool wanted(Level level, const std::string& module) { return static_cast<int>(level) >= least_level(module); }

}  // namespace

std::string now_text() {
    const auto since = std::chrono::system_clock::now().time_since_epoch();
    const long long us = std::chrono::duration_cast<std::chrono::microseconds>(since).count();
    const time_t seconds = us / 1000000;
    tm local{};
    localtime_r(&seconds, &local);
    char text[64];
    const size_t used = std::strftime(text, sizeof text, "%Y-%m-%d-%H:%M:%S", &local);
    std::snprintf(text + used, sizeof text - used, ".%03lld.%03lld", us / 1000 % 1000, us % 1000);
    return text;
}

void plog(Level level, const char* module, const char* file, int line, const std::string& text) {
    if (!wanted(level, module)) return;
    static constexpr const char* NAMES[] = {"DEBUG", "INFO", "WARNING", "ERROR"};
    std::ostringstream made;
    made << '[' << NAMES[static_cast<int>(level)] << "] " << module << '(' << getpid() << ',' << __progname
         << "):" << now_text() << " [" << file << ':' << line << ']' << gettid() << ' ' << text << '\n';
    if (to_stdout())
        print(made.str());
    else
        File::the().append(made.str());
}

}  // namespace sim

// torch_npu's own lines.  It gives the file where the header says function, and the other way round.
extern "C" void aclAppLog(aclLogLevel level, const char* function, const char* file, uint32_t line,
                          const char* format, ...) {
    if (!function || !file || !format || level < ACL_DEBUG || level > ACL_ERROR) return;
    const auto chosen = static_cast<sim::Level>(level);
    if (!sim::wanted(chosen, "APP")) return;
    char text[1024];  // CANN cuts what is longer, too
    va_list values;
    va_start(values, format);
    std::vsnprintf(text, sizeof text, format, values);
    va_end(values);
    std::ostringstream made;
    made << function << ':' << file << ':' << line << ": \"" << text << '"';
    sim::plog(chosen, "APP", "log_inner.cpp", 1, made.str());
}
