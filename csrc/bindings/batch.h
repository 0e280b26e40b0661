#pragma once

#include <memory>

#include "bindings/arrays/tensors.h"
#include "plan/batch.h"
#include "store/schema.h"

namespace gear::bindings {

/// A batch as Python sees it: tensors by kind and output number. The schema gives shapes.
class PyBatch {
 public:
  enum Kind { kData, kMask, kLengths, kCuSeqlens, kIds, kProbabilities, kWeights };

  PyBatch(plan::Batch batch, std::shared_ptr<const store::Schema> schema)
      : batch_(std::move(batch)), schema_(std::move(schema)) {}

  uint64_t items() const { return batch_.items; }
  uint64_t bytes() const { return batch_.bytes; }
  std::string path() const { return std::string(plan::kPaths.name(batch_.path)); }
  /// GPU in whose memory the tensors are; -1: host memory.
  int device() const { return batch_.delivery ? batch_.delivery->device() : -1; }

  py::array numpy(int kind, size_t output) const;
  /// `stream`: of the consumer, on a GPU, as the DLPack protocol has it: 1 or none is the default
  /// stream. -1 asks for no order: whoever does reads on the default stream, or sees to it that its
  /// streams are done before the tensors go.
  py::capsule dlpack(int kind, size_t output, std::optional<int64_t> stream) const;
  /// The data of all outputs, by number, in host memory: one call in place of one each.
  py::list dlpack_all() const;

 private:
  TensorView view(int kind, size_t output) const;
  TensorView make(uint64_t offset, base::DType dtype, std::vector<int64_t> shape) const {
    return {batch_.block, batch_.block.get() + offset, dtype, std::move(shape), device()};
  }

  plan::Batch batch_;
  std::shared_ptr<const store::Schema> schema_;
};

}  // namespace gear::bindings
