// aclTensor, aclScalar and the lists of them: what torch_npu makes of its arguments before it calls an op.
// Their prototypes are in no header of the wheel; they are the typedefs in op_api_common_base.h of op-plugin.
#include "handles.h"

#include <ATen/ops/from_blob.h>

#include <optional>
#include <utility>

#include "sim.h"

namespace {

// What could not be made into a handle is a null pointer, which for an op is an argument left out.  So the
// next op of this thread, the one that would have got it, is refused with these words.
thread_local std::string refusal;

std::nullptr_t refuse(const std::string& what) {
    refusal = "[cann_sim] " + what + " is not simulated";
    return nullptr;
}

std::optional<at::ScalarType> scalar_type(aclDataType type) {
    switch (type) {
        case ACL_FLOAT: return at::kFloat;
        case ACL_FLOAT16: return at::kHalf;
        case ACL_BF16: return at::kBFloat16;
        case ACL_DOUBLE: return at::kDouble;
        case ACL_INT8: return at::kChar;
        case ACL_INT16: return at::kShort;
        case ACL_INT32: return at::kInt;
        case ACL_INT64: return at::kLong;
        case ACL_UINT8: return at::kByte;
        case ACL_BOOL: return at::kBool;
        case ACL_COMPLEX64: return at::kComplexFloat;
        case ACL_COMPLEX128: return at::kComplexDouble;
        default: return std::nullopt;
    }
}

// In these the elements lie where shape and stride say; the fractal and five-dimensional formats are tiled.
bool is_plain(aclFormat format) {
    return format == ACL_FORMAT_ND || format == ACL_FORMAT_NCL || format == ACL_FORMAT_NCHW ||
           format == ACL_FORMAT_NHWC || format == ACL_FORMAT_NCDHW || format == ACL_FORMAT_NDHWC;
}

template <class T>
c10::Scalar read(const void* value) {
    return c10::Scalar(*static_cast<const T*>(value));
}

// A list owns its elements, as CANN's does: torch_npu destroys the list only.
template <class List>
int destroy_list(const List* list) {
    if (list) {
        for (const auto* element : list->values) delete element;
    }
    delete list;
    return ACL_SUCCESS;
}

template <class T>
int destroy(const T* handle) {
    delete handle;
    return ACL_SUCCESS;
}

}  // namespace

std::string take_refusal() { return std::exchange(refusal, {}); }

extern "C" {

aclTensor* aclCreateTensor(const int64_t* sizes, uint64_t dims, aclDataType type, const int64_t* strides,
                           int64_t offset, aclFormat format, const int64_t*, uint64_t, void* storage) {
    const auto dtype = scalar_type(type);
    if (!dtype) return refuse("data type " + std::to_string(type) + " of a tensor");
    if (!is_plain(format)) return refuse("format " + std::to_string(format) + " of a tensor");
    char* data = static_cast<char*>(storage) + offset * static_cast<int64_t>(c10::elementSize(*dtype));
    return new aclTensor{
        at::from_blob(data, {sizes, dims}, {strides, dims}, at::TensorOptions().dtype(*dtype))};
}

aclScalar* aclCreateScalar(void* value, aclDataType type) {
    switch (type) {
        case ACL_FLOAT: return new aclScalar{read<float>(value)};
        case ACL_DOUBLE: return new aclScalar{read<double>(value)};
        case ACL_FLOAT16: return new aclScalar{read<at::Half>(value)};
        case ACL_BF16: return new aclScalar{read<at::BFloat16>(value)};
        case ACL_INT32: return new aclScalar{read<int32_t>(value)};
        case ACL_INT64: return new aclScalar{read<int64_t>(value)};
        case ACL_BOOL: return new aclScalar{read<bool>(value)};
        case ACL_COMPLEX128: return new aclScalar{read<c10::complex<double>>(value)};
        default: return refuse("data type " + std::to_string(type) + " of a scalar");
    }
}

aclIntArray* aclCreateIntArray(const int64_t* values, uint64_t count) {
    return new aclIntArray{{values, values + count}};
}
aclFloatArray* aclCreateFloatArray(const float* values, uint64_t count) {
    return new aclFloatArray{{values, values + count}};
}
aclBoolArray* aclCreateBoolArray(const bool* values, uint64_t count) {
    return new aclBoolArray{
        std::vector<bool>(values, values + count)};  // in braces: a list of two pointers, as bools
}
aclTensorList* aclCreateTensorList(const aclTensor* const* values, uint64_t count) {
    return new aclTensorList{{values, values + count}};
}
aclScalarList* aclCreateScalarList(const aclScalar* const* values, uint64_t count) {
    return new aclScalarList{{values, values + count}};
}

int aclDestroyTensor(const aclTensor* handle) { return destroy(handle); }
int aclDestroyScalar(const aclScalar* handle) { return destroy(handle); }
int aclDestroyIntArray(const aclIntArray* handle) { return destroy(handle); }
int aclDestroyFloatArray(const aclFloatArray* handle) { return destroy(handle); }
int aclDestroyBoolArray(const aclBoolArray* handle) { return destroy(handle); }
int aclDestroyTensorList(const aclTensorList* handle) { return destroy_list(handle); }
int aclDestroyScalarList(const aclScalarList* handle) { return destroy_list(handle); }
int aclDestroyAclOpExecutor(aclOpExecutor* handle) { return destroy(handle); }

// How torch_npu learns the shape of a result that depends on the data.  It frees the sizes with delete[].
int aclGetViewShape(const aclTensor* handle, int64_t** sizes, uint64_t* dims) {
    const at::IntArrayRef shape = handle->shape ? at::IntArrayRef(*handle->shape) : handle->tensor.sizes();
    *dims = shape.size();
    *sizes = new int64_t[shape.size()];
    std::copy(shape.begin(), shape.end(), *sizes);
    return ACL_SUCCESS;
}

}  // extern "C"
