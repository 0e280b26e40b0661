// The Python extension gear_mpi._c10d.

#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "base/errors.h"
#include "base/threads/interrupt.h"
#include "engine/log.h"
#include "mpi/runtime.h"
#include "over_mpi/mpi_carrier.h"
#include "over_mpi/world.h"
#include "torch/backend.h"

namespace py = pybind11;

namespace gear::process_group {
namespace {

// Python's answer to Ctrl-C, in the middle of a wait.
void check_signals() {
  const py::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() != 0) {
    throw py::error_already_set();
  }
}

void translate(std::exception_ptr thrown) {
  try {
    std::rethrow_exception(std::move(thrown));
  } catch (const base::TransportError& error) {
    PyErr_SetString(py::module_::import("gear_mpi.errors").attr("TransportError").ptr(),
                    error.what());
  } catch (const base::InvalidArgument& error) {
    PyErr_SetString(py::module_::import("gear_mpi.errors").attr("InvalidArgument").ptr(),
                    error.what());
  }
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  module.doc() = "torch.distributed over MPI.";
  base::interrupt_check.store(&check_signals);
  py::register_local_exception_translator(&translate);

  py::enum_<Compression>(module, "Compression")
      .value("NONE", Compression::kNone)
      .value("BF16", Compression::kBf16)
      .value("F16", Compression::kF16);
  py::enum_<Kind> kinds(module, "Kind");
  for (auto kind = Kind::kBroadcast; kind <= Kind::kReceive;
       kind = static_cast<Kind>(static_cast<uint8_t>(kind) + 1)) {
    kinds.value(kind_name(kind).data(), kind);
  }
  using Options = Backend::Options;
  py::class_<Options, ::c10d::Backend::Options, c10::intrusive_ptr<Options>>(module, "Options")
      .def(py::init(
               [](double timeout_s, uint64_t segment_bytes, bool takes_gpus, bool shares_memory) {
                 auto options = c10::make_intrusive<Options>(
                     std::chrono::milliseconds(static_cast<int64_t>(timeout_s * 1e3)));
                 options->segment_bytes = segment_bytes;
                 options->takes_gpus = takes_gpus;
                 options->shares_memory = shares_memory;
                 return options;
               }),
           py::arg("timeout_s"), py::arg("segment_bytes"), py::arg("takes_gpus"),
           py::arg("shares_memory"));
  py::class_<Backend, ::c10d::Backend, c10::intrusive_ptr<Backend>>(module, "Backend")
      .def(py::init([](int rank, const std::vector<int>& world_ranks, const std::string& name,
                       c10::intrusive_ptr<Options> options) {
             auto carrier = std::make_shared<MpiCarrier>(
                 rank, world_ranks, name, options->segment_bytes,
                 std::chrono::duration<double>(options->timeout).count());
             return c10::make_intrusive<Backend>(std::move(carrier), std::move(options));
           }),
           py::arg("rank"), py::arg("world_ranks"), py::arg("name"), py::arg("options"),
           py::call_guard<py::gil_scoped_release>())
      .def(
          "set_devices",
          [](Backend& backend, const py::capsule& devices, bool shares_memory) {
            const auto& found = *devices.get_pointer<const Devices>();
            const py::gil_scoped_release unlocked;
            backend.set_devices(found, shares_memory);
          },
          py::arg("devices"), py::arg("shares_memory"))
      .def_property_readonly("shares_memory", &Backend::shares_memory)
      .def_property("compression", &Backend::compression, &Backend::set_compression)
      .def_property_readonly("timeout",
                             [](Backend& backend) { return backend.getBackendOptions()->timeout; })
      .def_property_readonly("has_gloo",
                             [](Backend& backend) { return backend.gloo().has_joined(); })
      .def("join_gloo",
           [](Backend& backend, ::c10d::Backend& group) {
             backend.gloo().join(
                 c10::intrusive_ptr<::c10d::Backend>::unsafe_reclaim_from_nonowning(&group));
           })
      .def(
          "set_route",
          [](Backend& backend, Kind kind, uint64_t from, uint64_t to) {
            backend.gloo().set(kind, from, to);
          },
          py::arg("kind"), py::arg("from_bytes"), py::arg("to_bytes"))
      .def("route", [](Backend& backend, Kind kind) { return backend.gloo().range(kind); });
  module.def("world", &world, py::call_guard<py::gil_scoped_release>());
  module.def("local_rank", &local_rank, py::arg("timeout_s"),
             py::call_guard<py::gil_scoped_release>());
  module.def("from_rank_0", &from_rank_0, py::arg("text"), py::arg("timeout_s"),
             py::call_guard<py::gil_scoped_release>());
  module.def("mpi_version", &mpi_version);
  module.def("is_running", &mpi::is_running);
  module.def("never_finalise", &mpi::never_finalise);
  module.def("begin_log", &Log::begin, py::arg("rank"), py::arg("file"), py::arg("prints"));
  module.def(
      "stop",
      [] {
        Engine::instance().stop();
        if (Log* const log = Log::current()) {
          log->flush();
        }
      },
      py::call_guard<py::gil_scoped_release>());
  module.attr("version") = GEAR_VERSION;
}

}  // namespace gear::process_group
