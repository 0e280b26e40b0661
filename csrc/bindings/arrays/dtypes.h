#pragma once

#include <pybind11/numpy.h>

#include "base/dtype.h"
#include "bindings/arrays/dlpack.h"
#include "bindings/bindings.h"

namespace gear::bindings {

/// The NumPy dtype in which a column travels; bfloat16, which NumPy lacks, travels as uint16 bits.
/// Made once each.
const py::dtype& numpy_dtype(base::DType dtype);

DLDataType dlpack_dtype(base::DType dtype);

}  // namespace gear::bindings
