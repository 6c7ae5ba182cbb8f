// Faults on demand, by CANN_SIM_FAULTS at the start or by cann_sim_control() at any time (ctypes).  Items are
// apart by ';':
//
//     exception op=aclnnRelu at=3 code=507035   the third run from now fails the device; the next wait tells
//     ecc op=… at=…                             the same: broken memory (507054)
//     timeout op=… at=… code=507014             the same: it ran for too long
//     hang op=… at=…                            that run never ends: its stream stands still until "release"
//     hang-launch op=… at=…                     that call of aclnnX does not return until "release"
//     refuse op=… at=… code=561002              aclnnX returns the code
//     reject op=… at=… code=161002              aclnnXGetWorkspaceSize returns the code
//     release                                   what hangs goes on, and what was to hang will not
//     heal                                      as if nothing had ever been asked for or gone wrong
//
// op=* is any op; at=1 and the codes above may be left out.  Words that mean nothing end the program at its
// start.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <sstream>

#include "error.h"

namespace sim {
namespace {

enum class Verb { EXCEPTION, HANG, HANG_LAUNCH, REFUSE, REJECT, RELEASE, HEAL };

struct Word {
    const char* text;
    Verb verb;
    int code;  // without code=
    bool takes_code;
};

constexpr Word WORDS[] = {
    {"exception", Verb::EXCEPTION, ACL_ERROR_RT_VECTOR_CORE_EXCEPTION, true},
    {"ecc", Verb::EXCEPTION, ACL_ERROR_RT_HBM_MULTI_BIT_ECC_ERROR, false},
    {"timeout", Verb::EXCEPTION, ACL_ERROR_RT_AICORE_TIMEOUT, true},
    {"hang", Verb::HANG, 0, false},
    {"hang-launch", Verb::HANG_LAUNCH, 0, false},
    {"refuse", Verb::REFUSE, 561002, true},
    {"reject", Verb::REJECT, 161002, true},
    {"release", Verb::RELEASE, 0, false},
    {"heal", Verb::HEAL, 0, false},
};

struct Item {
    Verb verb;
    std::string op;
    int left = 1;  // runs until it happens
    int code = 0;
};

struct Rejected {
    std::string word;
};

int number(const std::string& word, const std::string& text) {
    char* end = nullptr;
    const long value = std::strtol(text.c_str(), &end, 10);
    if (text.empty() || *end || value < 1 || value > 10000000) throw Rejected{word};
    return static_cast<int>(value);
}

Item item_of(const std::string& text) {
    std::istringstream words(text);
    std::string word;
    words >> word;
    const auto* const found = std::find_if(std::begin(WORDS), std::end(WORDS),
                                           [&](const Word& known) { return word == known.text; });
    if (found == std::end(WORDS)) throw Rejected{word};
    Item item{found->verb, "", 1, found->code};
    const bool of_an_op = item.verb != Verb::RELEASE && item.verb != Verb::HEAL;
    while (words >> word) {
        const size_t at = word.find('=');
        const std::string key = word.substr(0, at);
        const std::string value = at == std::string::npos ? "" : word.substr(at + 1);
        if (of_an_op && key == "op" && !value.empty())
            item.op = value;
        else if (of_an_op && key == "at")
            item.left = number(word, value);
        else if (found->takes_code && key == "code")
            item.code = number(word, value);
        else
            throw Rejected{word};
    }
    if (of_an_op && item.op.empty()) throw Rejected{text + " (no op=)"};
    if (item.verb == Verb::EXCEPTION && !is_device_failure(item.code))
        throw Rejected{"code=" + std::to_string(item.code)};
    return item;
}

std::vector<Item> items_of(const std::string& text) {
    std::vector<Item> found;
    std::istringstream parts(text);
    for (std::string part; std::getline(parts, part, ';');)
        if (part.find_first_not_of(" \t\n") != std::string::npos) found.push_back(item_of(part));
    return found;
}

class Faults {
 public:
    static Faults& the() {
        static auto* const faults = new Faults;
        return *faults;
    }

    void add(const std::vector<Item>& items) {
        std::lock_guard<std::mutex> guard(mutex);
        for (const Item& item : items) {
            if (item.verb == Verb::HEAL) {
                pending.clear();
                heal_devices();
            }
            if (item.verb == Verb::HEAL || item.verb == Verb::RELEASE) {
                std::erase_if(pending, is_hang);
                hangs = 0;
                changed.notify_all();
            } else {
                pending.push_back(item);
            }
        }
        any = !pending.empty();
    }

    // The one that happens now; RELEASE: none.  All that wait for this op are counted down.
    Item take(std::initializer_list<Verb> verbs, const std::string& op) {
        Item taken{Verb::RELEASE, "", 0, 0};
        if (!any) return taken;  // asked at each kernel
        std::lock_guard<std::mutex> guard(mutex);
        auto now = pending.end();
        for (auto item = pending.begin(); item != pending.end(); ++item) {
            if (item->op != "*" && item->op != op) continue;
            if (std::find(verbs.begin(), verbs.end(), item->verb) == verbs.end()) continue;
            if (item->left > 1)
                item->left--;
            else if (now == pending.end())
                now = item;
        }
        if (now == pending.end()) return taken;
        taken = *now;
        pending.erase(now);
        // Counted here: a release between now and the wait must not be missed.
        if (is_hang(taken)) hangs++;
        any = !pending.empty();
        return taken;
    }

    void wait() {
        std::unique_lock<std::mutex> lock(mutex);
        changed.wait(lock, [&] { return hangs == 0; });
    }

 private:
    static bool is_hang(const Item& item) {
        return item.verb == Verb::HANG || item.verb == Verb::HANG_LAUNCH;
    }

    std::mutex mutex;
    std::condition_variable changed;
    std::vector<Item> pending;
    std::atomic<bool> any = false;
    int hangs = 0;
};

void explain(const Rejected& rejected) {
    std::fprintf(stderr, "[cann_sim] faults: not understood: %s\n", rejected.word.c_str());
}

[[maybe_unused]] const bool asked_at_start = [] {
    try {
        Faults::the().add(items_of(settings().faults));
    } catch (const Rejected& rejected) {
        explain(rejected);
        std::_Exit(2);  // not exit(): libraries are still being loaded
    }
    return true;
}();

}  // namespace

Fault on_run(const std::string& op, int, int) {
    const Item item = Faults::the().take({Verb::EXCEPTION, Verb::HANG}, op);
    if (item.verb == Verb::EXCEPTION) return {Fault::EXCEPTION, item.code};
    return {item.verb == Verb::HANG ? Fault::HANG : Fault::NONE, 0};
}

int on_launch(const std::string& op) {
    const Item item = Faults::the().take({Verb::REFUSE, Verb::HANG_LAUNCH}, op);
    if (item.verb == Verb::HANG_LAUNCH) Faults::the().wait();
    if (item.verb != Verb::REFUSE) return ACL_SUCCESS;
    set_recent_error(refused_text(item.code, op, current_device()));
    if (is_device_failure(item.code)) remember_code(item.code);
    return item.code;
}

int on_prepare(const std::string& op) {
    const Item item = Faults::the().take({Verb::REJECT}, op);
    if (item.verb != Verb::REJECT) return ACL_SUCCESS;
    std::ostringstream text;
    text << "EZ1001: [PID: " << getpid() << "] " << now_text() << " [cann_sim] the parameters of " << op
         << " were rejected.\n";
    set_recent_error(text.str());
    return item.code;
}

void wait_while_hanging(int) { Faults::the().wait(); }

// 507046, with this text, as in the source of CANN's runtime; which task it was is told there, too.
int sync_timeout_code() {
    std::ostringstream text;
    text << "EE1002: [PID: " << getpid() << "] " << now_text()
         << " Stream synchronize timeout. rtStreamSynchronizeWithTimeout execute failed, "
            "reason=[stream sync timeout]\n"
            "        Possible Cause: 1. The timeout interval may be improperly set.\n"
            "        Solution: 1. Check whether the timeout interval is properly set. "
            "2. Check whether the network is normal.\n";
    set_recent_error(text.str());
    remember_code(ACL_ERROR_RT_STREAM_SYNC_TIMEOUT);
    plog(Level::ERROR, "RUNTIME", "api_c.cc", 1,
         "rtStreamSynchronizeWithTimeout:ErrCode=507046, desc=[stream sync timeout], InnerCode=0x7030010");
    return ACL_ERROR_RT_STREAM_SYNC_TIMEOUT;
}

}  // namespace sim

extern "C" int cann_sim_control(const char* words) {
    try {
        sim::Faults::the().add(sim::items_of(words));
        return 0;
    } catch (const sim::Rejected& rejected) {
        sim::explain(rejected);
        return 1;
    }
}
