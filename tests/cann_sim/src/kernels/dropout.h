// The mask of dropout: one bit an element, lowest bit first, 1 for kept.  (CANN does not say in which order;
// only ops of CANN read it.)
#pragma once
#include "op.h"

// The bits of the mask as a tensor of bool of this shape.
Tensor dropout_bits(const Tensor& mask, at::IntArrayRef shape);
