#pragma once

#include <pybind11/numpy.h>

#include <memory>
#include <vector>

#include "base/dtype.h"
#include "bindings/bindings.h"

// What callers get: views of a batch's memory, by NumPy or DLPack, never a copy.

namespace gear::bindings {

/// A tensor inside a block of memory that lives as long as anyone views it.
struct TensorView {
  std::shared_ptr<std::byte> owner;
  void* data;
  base::DType dtype;
  std::vector<int64_t> shape;
  int device = -1;  ///< GPU whose memory it is; -1: host memory
};

py::array to_numpy(const TensorView& view);

/// A capsule "dltensor" (unversioned DLPack) for from_dlpack of any framework.
py::capsule to_dlpack(TensorView view);

}  // namespace gear::bindings
