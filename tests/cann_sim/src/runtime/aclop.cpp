// The old way of running an op, by its type's name and descriptions of its tensors.  torch_npu takes it for
// the overflow register, and for ops that have no aclnn; only the former is simulated, all else fails by its
// name.
#include <cstdio>
#include <cstring>

#include "acl/acl_op_compiler.h"
#include "error.h"

struct aclTensorDesc {
    aclDataType type;
    aclFormat format;
    std::vector<int64_t> shape;
};
struct aclDataBuffer {
    void* place;
    size_t bytes;
};
// What is set on it is dropped: no op that is simulated has an attribute.
struct aclopAttr {};

namespace {

using namespace sim;

struct Place {
    void* place;
    size_t bytes;
    aclDataType type;

    void fill(bool first) const {
        std::memset(place, 0, bytes);
        if (!first) return;
        const float real = 1;
        const int32_t whole = 1;
        std::memcpy(place, type == ACL_FLOAT ? static_cast<const void*>(&real) : &whole, sizeof whole);
    }
};

std::vector<Place> places(int count, const aclTensorDesc* const descriptions[],
                          const aclDataBuffer* const buffers[]) {
    std::vector<Place> found;
    for (int i = 0; i < count; i++)
        found.push_back({buffers[i]->place, buffers[i]->bytes, descriptions[i]->type});
    return found;
}

aclError missing(const std::string& type) {
    const std::string text = "[cann_sim] op " + type + " went the old way (aclop), which is not simulated";
    std::fprintf(stderr, "%s\n", text.c_str());
    set_recent_error(inner_error("EZ9999", {{"aclopCompileAndExecute", "aclop.cpp", text}}));
    return ACL_ERROR_OP_NOT_FOUND;
}

// The types end in V2 from Ascend910B1 on, and then have no inputs.
aclError execute(std::string type, std::vector<Place> inputs, std::vector<Place> outputs,
                 aclrtStream handle) {
    Stream* const stream = stream_of(handle);
    const int device = device_of(stream);
    const auto is = [&](const char* name) { return type == name || type == std::string(name) + "V2"; };
    std::function<void()> run;
    if (is("NPUAllocFloatStatus"))
        run = [=] {
            for (const Place& output : outputs) output.fill(false);
        };
    else if (is("NPUGetFloatStatus"))
        run = [=] {
            // The tensor that torch_npu reads on the first 910 is the input.
            for (const Place& input : inputs) input.fill(overflowed(device));
            for (const Place& output : outputs) output.fill(overflowed(device));
        };
    else if (is("NPUClearFloatStatus"))
        run = [=] {
            clear_overflow(device);
            for (const Place& output : outputs) output.fill(false);
        };
    else
        return missing(type);
    if (const int code = on_launch(type)) return code;
    push(stream, {type, run, true});
    return ACL_SUCCESS;
}

}  // namespace

extern "C" {

aclTensorDesc* aclCreateTensorDesc(aclDataType type, int rank, const int64_t* shape, aclFormat format) {
    return new aclTensorDesc{type, format, {shape, shape + rank}};
}
void aclDestroyTensorDesc(const aclTensorDesc* description) { delete description; }
aclDataType aclGetTensorDescType(const aclTensorDesc* description) { return description->type; }
aclFormat aclGetTensorDescFormat(const aclTensorDesc* description) { return description->format; }
size_t aclGetTensorDescNumDims(const aclTensorDesc* description) { return description->shape.size(); }
aclError aclGetTensorDescDimV2(const aclTensorDesc* description, size_t index, int64_t* size) {
    if (index >= description->shape.size()) return ACL_ERROR_INVALID_PARAM;
    *size = description->shape[index];
    return ACL_SUCCESS;
}
// The format and shape as they lie in memory, the name, and where the memory is: nothing here looks at them.
aclError aclSetTensorFormat(aclTensorDesc*, aclFormat) { return ACL_SUCCESS; }
aclError aclSetTensorShape(aclTensorDesc*, int, const int64_t*) { return ACL_SUCCESS; }
aclError aclSetTensorPlaceMent(aclTensorDesc*, aclMemType) { return ACL_SUCCESS; }
void aclSetTensorDescName(aclTensorDesc*, const char*) {}

aclDataBuffer* aclCreateDataBuffer(void* place, size_t bytes) { return new aclDataBuffer{place, bytes}; }
aclError aclDestroyDataBuffer(const aclDataBuffer* buffer) {
    delete buffer;
    return ACL_SUCCESS;
}

aclopAttr* aclopCreateAttr() { return new aclopAttr; }
void aclopDestroyAttr(const aclopAttr* attributes) { delete attributes; }
aclError aclopSetAttrBool(aclopAttr*, const char*, uint8_t) { return ACL_SUCCESS; }
aclError aclopSetAttrInt(aclopAttr*, const char*, int64_t) { return ACL_SUCCESS; }
aclError aclopSetAttrFloat(aclopAttr*, const char*, float) { return ACL_SUCCESS; }
aclError aclopSetAttrString(aclopAttr*, const char*, const char*) { return ACL_SUCCESS; }
aclError aclopSetAttrDataType(aclopAttr*, const char*, aclDataType) { return ACL_SUCCESS; }
aclError aclopSetAttrListBool(aclopAttr*, const char*, int, const uint8_t*) { return ACL_SUCCESS; }
aclError aclopSetAttrListInt(aclopAttr*, const char*, int, const int64_t*) { return ACL_SUCCESS; }
aclError aclopSetAttrListFloat(aclopAttr*, const char*, int, const float*) { return ACL_SUCCESS; }
aclError aclopSetAttrListListInt(aclopAttr*, const char*, int, const int*, const int64_t* const[]) {
    return ACL_SUCCESS;
}

aclError aclopCompileAndExecute(const char* type, int input_count,
                                const aclTensorDesc* const input_descriptions[],
                                const aclDataBuffer* const inputs[], int output_count,
                                const aclTensorDesc* const output_descriptions[],
                                aclDataBuffer* const outputs[], const aclopAttr*, aclopEngineType,
                                aclopCompileType, const char*, aclrtStream stream) {
    return execute(type, places(input_count, input_descriptions, inputs),
                   places(output_count, output_descriptions, outputs), stream);
}

// For ops whose output has a shape that depends on the data: none of the simulated ones.
aclError aclopCompileAndExecuteV2(const char* type, int, aclTensorDesc*[], aclDataBuffer*[], int,
                                  aclTensorDesc*[], aclDataBuffer*[], aclopAttr*, aclopEngineType,
                                  aclopCompileType, const char*, aclrtStream) {
    return missing(type);
}

}  // extern "C"
