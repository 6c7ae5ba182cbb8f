// What copies have to know of host memory.
#pragma once
#include "sim.h"

namespace sim {

bool is_pinned(const void* place);  // by aclrtMallocHost

}  // namespace sim
