// Which CANN this claims to be: torch_npu chooses among ways of doing a thing by it.  Its texts of errors are those of
// the same version or a little older (error.cpp).
#include <cstring>

#include "sim.h"

namespace {

constexpr const char* CANN = "8.5.0";
constexpr const char* DRIVER = "25.2.0";

}  // namespace

extern "C" {

aclError aclsysGetCANNVersion(aclCANNPackageName, aclCANNPackageVersion* version) {
    std::memset(version, 0, sizeof *version);
    std::strncpy(version->version, CANN, sizeof version->version - 1);
    return ACL_SUCCESS;
}

aclError aclsysGetVersionStr(char* package, char* version) {
    std::strcpy(version, std::strcmp(package, "DRIVER") ? CANN : DRIVER);
    return ACL_SUCCESS;
}

}  // extern "C"
