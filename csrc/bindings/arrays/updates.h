#pragma once

#include <pybind11/numpy.h>

#include "bindings/bindings.h"

namespace gear::bindings {

/// What `update` takes.
using Ids = py::array_t<int64_t, py::array::c_style>;
using Priorities = py::array_t<float, py::array::c_style | py::array::forcecast>;
/// Throws InvalidArgument unless there is one priority an id, both one-dimensional.
void check_update(const Ids& ids, const Priorities& priorities);

/// update(ids, priorities) of a shard, or of a buffer over ranks, as a Python class has it: of
/// arrays, by address of the host's memory, and by address of a GPU's.
template <class Updated, class... Options>
void def_updates(py::class_<Updated, Options...>& into) {
  into.def(
      "update",
      [](Updated& updated, const Ids& ids, const Priorities& priorities) {
        check_update(ids, priorities);
        return updated.update({ids.data(), static_cast<size_t>(ids.size())},
                              {priorities.data(), static_cast<size_t>(priorities.size())});
      },
      py::arg("ids"), py::arg("priorities"));
  into.def(
      "update_at",
      [](Updated& updated, uintptr_t ids, uintptr_t priorities, uint64_t count) {
        return updated.update({reinterpret_cast<const int64_t*>(ids), count},
                              {reinterpret_cast<const float*>(priorities), count});
      },
      py::arg("ids"), py::arg("priorities"), py::arg("count"));
  into.def(
      "update_from_device",
      [](Updated& updated, uintptr_t ids, uintptr_t priorities, uint64_t count, uintptr_t stream) {
        const py::gil_scoped_release release;
        updated.update_from_device(reinterpret_cast<const int64_t*>(ids),
                                   reinterpret_cast<const float*>(priorities), count, stream);
      },
      py::arg("ids"), py::arg("priorities"), py::arg("count"), py::arg("stream"));
}

}  // namespace gear::bindings
