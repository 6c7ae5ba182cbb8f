// Waiting for streams.  A time of 0 or less is no limit; false: the time ran out.
#pragma once
#include "sim.h"

namespace sim {

bool wait_for_stream(Stream* stream, int timeout_ms = -1);
bool wait_for_device(int device, int timeout_ms = -1);
bool is_idle(Stream* stream);

}  // namespace sim
