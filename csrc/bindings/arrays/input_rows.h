#pragma once

#include <memory>

#include <pybind11/numpy.h>

#include "bindings/bindings.h"
#include "store/schema.h"

// What callers give: NumPy arrays, tensors by DLPack and scalars, without a copy that is not
// needed.

namespace gear::bindings {

class GpuArrays;

/// What stands along the first dimension of a value.
struct Lead {
  enum class Of : uint8_t { kNothing, kSteps, kEnvironments };
  Of of = Of::kNothing;
  uint64_t count = 0;               ///< of environments: how many there are
  const bool* looked_at = nullptr;  ///< of environments: whose rows count; null: all
  GpuArrays* gpu = nullptr;         ///< who takes what lies on a GPU; null: it is refused
};
inline constexpr Lead kOneStep{};
inline constexpr Lead kManySteps{Lead::Of::kSteps};

/// Steps of one column as given by a caller: C-contiguous bytes, valid until the next read()
/// or drop(); on a GPU for the call that it was read for.
class InputRows {
 public:
  /// Accepts a NumPy array of the column's dtype, anything with __dlpack__ on the CPU (torch and
  /// JAX tensors) and, for one step of a scalar column, Python and NumPy scalars. Floats of another
  /// width are rounded to the column's (to nearest), unless a finite one would become infinite.
  /// With Lead::gpu also what has __dlpack__ on a GPU and the column's own dtype.
  /// What is in a row that is not looked at is of no account, and undefined in data(). Throws
  /// InvalidArgument naming the column, what was given and what is allowed, also for another number
  /// of rows than there are environments.
  void read(const store::Column& column, py::handle value, const Lead& lead);

  /// Gives up what was read: the owner of the bytes lives no longer for it.
  void drop() { keep_ = {}; }
  /// Copies so many bytes, which then last until the next read(). Not on a GPU.
  void own(uint64_t bytes);

  const std::byte* data() const { return data_; }
  bool on_gpu() const { return on_gpu_; }
  uint64_t steps() const { return steps_; }

 private:
  bool read_scalar(const store::Column& column, py::handle value);
  void read_array(const store::Column& column, const py::array& array, const Lead& lead);
  /// As read_array(), of float16, float32 or float64, into another kind of float.
  void read_floats(const store::Column& column, const py::array& array, const Lead& lead);
  void read_dlpack(const store::Column& column, py::handle value, const Lead& lead);

  py::object keep_;  ///< owner of the bytes
  std::shared_ptr<std::byte[]> own_;
  const std::byte* data_ = nullptr;
  bool on_gpu_ = false;
  uint64_t steps_ = 0;
  alignas(8) std::byte scalar_[8];
};

}  // namespace gear::bindings
