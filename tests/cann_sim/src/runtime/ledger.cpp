// Who holds how much of each device: a table in a file, so that processes that share a device see each other's memory as
// they do on a real one.  The row of a process that died counts no more.
#include "sim.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <sstream>

namespace sim {
namespace {

struct Row {
    int32_t pid;
    int32_t device;
    uint64_t started;  // against a reused pid
    uint64_t bytes;
};
constexpr int ROWS = 256;

[[noreturn]] void give_up(const char* why) {
    std::perror(why);
    std::abort();
}

// Field 22 of /proc/PID/stat; the second one may hold spaces and ends with the last parenthesis.
uint64_t started(int pid) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
    std::string all((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    const size_t end = all.rfind(')');
    if (end == std::string::npos) return 0;
    std::istringstream rest(all.substr(end + 1));
    std::string field;
    for (int number = 3; number <= 22; number++) rest >> field;
    return std::strtoull(field.c_str(), nullptr, 10);
}

class Ledger {
  public:
    Ledger() {
        const std::string& path = settings().ledger;
        int flags = MAP_SHARED;
        if (path.empty()) {
            flags = MAP_PRIVATE | MAP_ANONYMOUS;
        } else {
            file_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
            if (file_ < 0 || ftruncate(file_, sizeof(Row) * ROWS)) give_up(path.c_str());
        }
        void* place = mmap(nullptr, sizeof(Row) * ROWS, PROT_READ | PROT_WRITE, flags, file_, 0);
        if (place == MAP_FAILED) give_up("[cann_sim] mmap of the ledger");
        rows_ = static_cast<Row*>(place);
    }

    bool add(int device, int64_t bytes) {
        Lock lock(*this);
        if (bytes > 0 && sum(device) + static_cast<uint64_t>(bytes) > settings().hbm_bytes) return false;
        own(device).bytes += static_cast<uint64_t>(bytes);
        return true;
    }

    uint64_t total(int device) {
        Lock lock(*this);
        return sum(device);
    }

  private:
    // A lock of fcntl belongs to a process: unlike one of flock it keeps parent and child apart after a fork.
    struct Lock {
        explicit Lock(Ledger& ledger) : guard(ledger.mutex_), file(ledger.file_) { set(F_WRLCK); }
        ~Lock() { set(F_UNLCK); }
        void set(short kind) {
            struct flock range = {};
            range.l_type = kind;
            range.l_whence = SEEK_SET;
            while (file >= 0 && fcntl(file, F_SETLKW, &range) < 0 && errno == EINTR) continue;
        }
        std::lock_guard<std::mutex> guard;
        int file;
    };

    uint64_t sum(int device) {
        uint64_t bytes = 0;
        for (int at = 0; at < ROWS; at++) {
            Row& row = rows_[at];
            if (row.pid && row.pid != getpid() && started(row.pid) != row.started) row = Row{};
            if (row.pid && row.device == device) bytes += row.bytes;
        }
        return bytes;
    }

    Row& own(int device) {
        Row* free_row = nullptr;
        for (int at = 0; at < ROWS; at++) {
            Row& row = rows_[at];
            if (row.pid == getpid() && row.device == device) return row;
            if (!row.pid && !free_row) free_row = &row;
        }
        if (!free_row) give_up("[cann_sim] the ledger is full");
        *free_row = Row{getpid(), device, started(getpid()), 0};
        return *free_row;
    }

    std::mutex mutex_;
    int file_ = -1;
    Row* rows_;
};

Ledger& ledger() {
    static Ledger* const one = new Ledger;
    return *one;
}

}  // namespace

bool hold(int device, uint64_t bytes) { return ledger().add(device, static_cast<int64_t>(bytes)); }
void release(int device, uint64_t bytes) { ledger().add(device, -static_cast<int64_t>(bytes)); }
uint64_t held_bytes(int device) { return ledger().total(device); }

}  // namespace sim
