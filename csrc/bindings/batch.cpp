#include "bindings/batch.h"

#include <pybind11/stl.h>

#include "base/errors.h"

namespace gear::bindings {
using plan::BatchLayout;

TensorView PyBatch::view(int kind, size_t output) const {
  const BatchLayout& layout = *batch_.layout;
  const auto items = static_cast<int64_t>(batch_.items);
  const bool per_output = kind <= kCuSeqlens;
  const size_t num_outputs = layout.outputs.size();
  if (per_output && output >= num_outputs + layout.derived.size()) {
    throw py::index_error("no such output");
  }
  switch (kind) {
    case kIds:
      return make(layout.ids, base::DType::kI64, {items});
    case kProbabilities:
      return make(layout.probabilities, base::DType::kF32, {items});
    case kWeights:
      return make(layout.weights, base::DType::kF32, {items});
    default:
      break;
  }
  const BatchLayout::DerivedOutput* const derived =
      output < num_outputs ? nullptr : &layout.derived[output - num_outputs];
  const size_t window = derived != nullptr ? derived->window : layout.window_of[output];
  const BatchLayout::SharedWindow& shared = layout.windows[window];
  const bool folds = derived == nullptr && layout.outputs[output].fold;
  const bool time_axis = derived != nullptr ? derived->time_axis : layout.outputs[output].time_axis;
  const auto length = static_cast<int64_t>(shared.window.length());
  std::vector<int64_t> shape;
  switch (kind) {
    case kLengths:
      return make(shared.lengths, base::DType::kI32, {items});
    case kCuSeqlens:
      if (!layout.packed) {
        throw base::InvalidArgument("[batch] cu_seqlens belong to packed batches");
      }
      return make(shared.cu_seqlens, base::DType::kI32, {items + 1});
    case kMask:
      if (layout.packed) {
        throw base::InvalidArgument(
            "[batch] a packed batch has no masks: nothing "
            "is padded; see lengths and cu_seqlens");
      }
      shape = {items};
      if (time_axis || folds) {
        shape.push_back(length);
      }
      return make(shared.mask, base::DType::kBool, std::move(shape));
    case kData: {
      if (layout.packed && !folds) {
        shape = {static_cast<int64_t>(batch_.rows[window])};
      } else {
        shape = {items};
        if (time_axis) {
          shape.push_back(length);
        }
      }
      if (derived != nullptr) {
        return make(derived->data, plan::derived_dtype(derived->kind), std::move(shape));
      }
      const store::Column& column = (*schema_)[layout.outputs[output].column];
      shape.insert(shape.end(), column.shape.begin(), column.shape.end());
      return make(layout.data[output], layout.dtypes[output], std::move(shape));
    }
    default:
      throw py::index_error("no such kind of tensor");
  }
}

py::array PyBatch::numpy(int kind, size_t output) const {
  if (device() >= 0) {
    throw base::InvalidArgument(
        base::cat("[batch] this batch is in the memory of GPU ", device(),
                  ": NumPy reads host memory only; use torch, cupy or jax"));
  }
  return to_numpy(view(kind, output));
}

py::capsule PyBatch::dlpack(int kind, size_t output, std::optional<int64_t> stream) const {
  constexpr int64_t kNoOrder = -1;
  if (device() >= 0) {
    const int64_t reader = stream == kNoOrder ? 0 : stream.value_or(0);
    batch_.delivery->make_wait(static_cast<uintptr_t>(reader));
  }
  return to_dlpack(view(kind, output));
}

py::list PyBatch::dlpack_all() const {
  GEAR_CHECK(device() < 0);
  const size_t count = batch_.layout->outputs.size() + batch_.layout->derived.size();
  py::list capsules(count);
  for (size_t output = 0; output < count; ++output) {
    capsules[output] = to_dlpack(view(kData, output));
  }
  return capsules;
}

void register_batch(py::module_& module) {
  py::class_<PyBatch> batch(module, "Batch");
  batch.def_property_readonly("items", &PyBatch::items)
      .def_property_readonly("bytes", &PyBatch::bytes)
      .def_property_readonly("path", &PyBatch::path)
      .def_property_readonly("device", &PyBatch::device)
      .def("numpy", &PyBatch::numpy, py::arg("kind"), py::arg("output") = 0)
      .def("dlpack_all", &PyBatch::dlpack_all)
      .def("dlpack", &PyBatch::dlpack, py::arg("kind"), py::arg("output") = 0,
           py::arg("stream") = py::none());
  batch.attr("DATA") = static_cast<int>(PyBatch::kData);
  batch.attr("MASK") = static_cast<int>(PyBatch::kMask);
  batch.attr("LENGTHS") = static_cast<int>(PyBatch::kLengths);
  batch.attr("CU_SEQLENS") = static_cast<int>(PyBatch::kCuSeqlens);
  batch.attr("IDS") = static_cast<int>(PyBatch::kIds);
  batch.attr("PROBABILITIES") = static_cast<int>(PyBatch::kProbabilities);
  batch.attr("WEIGHTS") = static_cast<int>(PyBatch::kWeights);
}

}  // namespace gear::bindings
