// What faults have to know of errors.
#pragma once
#include "sim.h"

namespace sim {

bool is_device_failure(int code);  // one that a wait can tell
std::string now_text();            // 2026-01-31-23:59:59.123.456, as CANN writes it

// One line of the text of an error, and where in CANN it comes from.
struct Line {
    std::string function;
    const char* file;
    std::string text;
};
// EZ9999: Inner Error! …  The first line is where it happened, the others what it led to.
std::string inner_error(const char* code, const std::vector<Line>& lines);
std::string refused_text(int code, const std::string& op, int device);  // of a launch that failed at once

// The code of this thread's last failing call.  torch_npu looks at it before it says which error it was.
void remember_code(int code);

}  // namespace sim
