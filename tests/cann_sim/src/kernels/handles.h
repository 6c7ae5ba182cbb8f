// The types behind CANN's opaque handles.  A tensor is a view of device memory, which is host memory here.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

struct aclTensor {
    at::Tensor tensor;
    std::shared_ptr<std::vector<int64_t>> shape = nullptr;  // where the op decides it, see Sized in op.h
};
struct aclScalar {
    c10::Scalar scalar;
};
struct aclIntArray {
    std::vector<int64_t> values;
};
struct aclFloatArray {
    std::vector<float> values;
};
struct aclBoolArray {
    std::vector<bool> values;
};
struct aclTensorList {
    std::vector<const aclTensor*> values;
};
struct aclScalarList {
    std::vector<const aclScalar*> values;
};
struct aclOpExecutor {
    std::string op;                  // aclnnAdd
    std::function<void()> run;       // the kernel with its arguments bound
    std::vector<at::Tensor> inputs;  // for saturation: see launch.cpp
    std::vector<at::Tensor> outputs;
};

// What could not be made into a handle on this thread since the last call; empty: nothing.
std::string take_refusal();
