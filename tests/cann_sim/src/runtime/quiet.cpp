// Calls that are right to do nothing here.  All others that torch_npu is linked to are made by symbols.py to fail with
// their name; what torch_npu looks up by name and does not find it treats as an older CANN without it.
#include <cstdio>

#include "acl/acl_mdl.h"
#include "acl/acl_op_compiler.h"
#include "sim.h"

extern "C" {

int sim_missing_call(const char* name) {
    std::fprintf(stderr, "[cann_sim] %s is not simulated\n", name);
    sim::set_recent_error(std::string("EE9999: [cann_sim] ") + name + " is not simulated");
    return ACL_ERROR_RT_FEATURE_NOT_SUPPORT;
}

aclError aclInit(const char*) { return ACL_SUCCESS; }
aclError aclFinalize() { return ACL_SUCCESS; }

// Dumps of tensors: torch_npu starts them at import with what its acl.json says.
aclError aclmdlInitDump() { return ACL_SUCCESS; }
aclError aclmdlSetDump(const char*) { return ACL_SUCCESS; }
aclError aclmdlFinalizeDump() { return ACL_SUCCESS; }

// Options of the operator compiler, which there is none of.
aclError aclSetCompileopt(aclCompileOpt, const char*) { return ACL_SUCCESS; }

// Determinism and the like: every kernel here is deterministic.
aclError aclrtSetSysParamOpt(aclSysParamOpt, int64_t) { return ACL_SUCCESS; }
aclError aclrtGetSysParamOpt(aclSysParamOpt, int64_t* value) {
    *value = 0;
    return ACL_SUCCESS;
}
aclError aclrtCtxSetSysParamOpt(aclSysParamOpt, int64_t) { return ACL_SUCCESS; }

// No kernel is timed out by the clock: a timeout is asked for as a fault.
aclError aclrtSetOpExecuteTimeOut(uint32_t) { return ACL_SUCCESS; }
aclError aclrtSetOpWaitTimeout(uint32_t) { return ACL_SUCCESS; }
aclError aclrtSetStreamFailureMode(aclrtStream, uint64_t) { return ACL_SUCCESS; }

}  // extern "C"
