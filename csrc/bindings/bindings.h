#pragma once

#include <pybind11/pybind11.h>

#include <optional>

// gear._core: the only place that knows Python. One file per folder of the core; module.cpp is the
// list of them. Rule of the house: Python is never called with a shard's lock held.

namespace gear::bindings {

namespace py = pybind11;

void register_base(py::module_& module);           ///< exceptions, log, build information
void register_devices(py::module_& module);        ///< GPUs, their links
void register_store(py::module_& module);          ///< Shard
void register_ingest(py::module_& module);         ///< Writer
void register_vector_writer(py::module_& module);  ///< VectorWriter
void register_batch(py::module_& module);          ///< Batch
void register_transport(py::module_& module);      ///< Transport
void register_emulated(py::module_& module);       ///< Traffic, LoneDraw
void register_group(py::module_& module);          ///< Peers
void register_collect(py::module_& module);        ///< Collector

/// gear.TransportError.
py::handle transport_error();
/// Whether this thread may ask for the GIL. Another than the one that ends the interpreter is ended
/// itself where it asks then, in the middle of C++: by SIGABRT, with the process.
inline bool may_take_gil() {
#if PY_VERSION_HEX >= 0x030D0000
  const bool ending = Py_IsFinalizing() != 0;
#else
  const bool ending = _Py_IsFinalizing() != 0;
#endif
  return Py_IsInitialized() != 0 && (!ending || PyGILState_Check() != 0);
}
inline constexpr double kLongWaitS = 10;  ///< seconds after which a wait is to be spoken of
/// Calls `attempt(slice_s)` without the GIL until it returns true or `timeout_s` (none: for ever)
/// has passed, looking for Ctrl-C between slices. Returns what the last call returned. `is_long()`
/// is called once, with the GIL, after kLongWaitS.
template <class Attempt, class IsLong>
bool wait_interruptibly(std::optional<double> timeout_s, Attempt attempt, IsLong is_long) {
  constexpr double kSlice = 0.1;
  double left = timeout_s.value_or(0.0);
  double until_long = kLongWaitS;
  for (;;) {
    const double slice = timeout_s && left < kSlice ? left : kSlice;
    bool done = false;
    {
      const py::gil_scoped_release release;
      done = attempt(slice);
    }
    if (done) {
      return true;
    }
    if (PyErr_CheckSignals() != 0) {
      throw py::error_already_set();
    }
    if (timeout_s && (left -= slice) <= 0) {
      return false;
    }
    if (until_long > 0 && (until_long -= slice) <= 0) {
      is_long();
    }
  }
}

}  // namespace gear::bindings
