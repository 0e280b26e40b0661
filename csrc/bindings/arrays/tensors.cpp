#include "bindings/arrays/tensors.h"

#include <utility>

#include "bindings/arrays/dtypes.h"

namespace gear::bindings {

py::array to_numpy(const TensorView& view) {
  auto* owner = new std::shared_ptr<std::byte>(view.owner);
  const py::capsule base(owner,
                         [](void* p) { delete static_cast<std::shared_ptr<std::byte>*>(p); });
  return py::array(numpy_dtype(view.dtype), view.shape, view.data, base);
}

py::capsule to_dlpack(TensorView view) {
  struct Managed {
    DLManagedTensor tensor;
    TensorView view;
  };
  auto* managed = new Managed{{}, std::move(view)};
  const TensorView& kept = managed->view;
  managed->tensor.dl_tensor = {
      kept.data,
      kept.device < 0 ? DLDevice{kDLCPU, 0} : DLDevice{kDLCUDA, kept.device},
      static_cast<int32_t>(kept.shape.size()),
      dlpack_dtype(kept.dtype),
      managed->view.shape.data(),
      nullptr,
      0};
  managed->tensor.manager_ctx = managed;
  managed->tensor.deleter = [](DLManagedTensor* self) {
    delete static_cast<Managed*>(self->manager_ctx);
  };
  // A consumer renames the capsule and calls the deleter itself.
  return py::capsule(&managed->tensor, "dltensor", [](PyObject* capsule) {
    if (!PyCapsule_IsValid(capsule, "dltensor")) {
      return;
    }
    auto* tensor = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule, "dltensor"));
    tensor->deleter(tensor);
  });
}

}  // namespace gear::bindings
