#include <unistd.h>

#include <exception>

#include "base/environment.h"
#include "base/errors.h"
#include "base/gpu/devices.h"
#include "base/log.h"
#include "base/numbers/simd.h"
#include "base/threads/blocking.h"
#include "base/threads/interrupt.h"
#include "base/threads/thread_pool.h"
#include "bindings/bindings.h"
#include "store/checkpoint/manifest.h"
#include "transport/fabric.h"
#include "transport/mpi.h"
#include "transport/verbs.h"

namespace gear::bindings {
namespace {

// The Python classes, given once by gear.errors. They live as long as the process: an exception may
// be raised during shutdown.
py::handle g_invalid_argument, g_out_of_memory, g_cuda, g_transport, g_corrupt, g_io;

// A message may quote bytes of a damaged file.
py::object text_of(const std::exception& error) {
  const std::string_view text = error.what();
  return py::reinterpret_steal<py::object>(
      PyUnicode_DecodeUTF8(text.data(), static_cast<py::ssize_t>(text.size()), "replace"));
}

void translate(std::exception_ptr pending) {
  if (!pending) {
    return;
  }
  try {
    std::rethrow_exception(pending);
  } catch (const base::InvalidArgument& error) {
    PyErr_SetObject(g_invalid_argument.ptr(), text_of(error).ptr());
  } catch (const base::OutOfMemory& error) {
    PyErr_SetObject(g_out_of_memory.ptr(), text_of(error).ptr());
  } catch (const base::CudaError& error) {
    PyErr_SetObject(g_cuda.ptr(), text_of(error).ptr());
  } catch (const base::TransportError& error) {
    PyErr_SetObject(g_transport.ptr(), text_of(error).ptr());
  } catch (const base::CorruptData& error) {
    PyErr_SetObject(g_corrupt.ptr(), text_of(error).ptr());
  } catch (const base::IoError& error) {
    const py::object instance =
        py::reinterpret_borrow<py::object>(g_io)(error.code(), text_of(error));
    PyErr_SetObject(g_io.ptr(), instance.ptr());
  }
}

void raise_as(py::object invalid_argument, py::object out_of_memory, py::object cuda,
              py::object transport, py::object corrupt, py::object io) {
  g_invalid_argument = invalid_argument.release();
  g_out_of_memory = out_of_memory.release();
  g_cuda = cuda.release();
  g_transport = transport.release();
  g_corrupt = corrupt.release();
  g_io = io.release();
}

void send_log_to(py::object sink) {
  // The sink outlives the interpreter's shutdown: it is never destroyed.
  auto* kept = new py::object(std::move(sink));
  base::set_log_sink(
      [kept](base::Level level, std::string_view message) {
        if (!may_take_gil()) {
          return;
        }
        const py::gil_scoped_acquire acquire;
        try {
          (*kept)(static_cast<int>(level), py::str(message.data(), message.size()));
        } catch (py::error_already_set& error) {
          error.discard_as_unraisable("gear log sink");
        }
      },
      base::log_level_from_environment());
}

// A thread that waits in the core gives the GIL up: whom it waits for may need it.
void install_blocking_hooks() {
  static constexpr base::BlockingHooks kHooks = {
      [] { return static_cast<void*>(PyGILState_Check() != 0 ? PyEval_SaveThread() : nullptr); },
      [](void* state) {
        if (state != nullptr) {
          PyEval_RestoreThread(static_cast<PyThreadState*>(state));
        }
      }};
  base::blocking_hooks.store(&kHooks, std::memory_order_release);
}

// Handlers of signals run in the main thread alone: others need not take the GIL.
void check_signals() {
  if (::gettid() != ::getpid()) {
    return;
  }
  const py::gil_scoped_acquire acquire;
  if (PyErr_CheckSignals() != 0) {
    throw py::error_already_set();
  }
}

py::dict build_info() {
  py::dict info;
  info["version"] = GEAR_VERSION;
  info["build_type"] = GEAR_BUILD_TYPE;
#if defined(__clang__)
  info["compiler"] = "clang " __clang_version__;
#else
  info["compiler"] = "gcc " __VERSION__;
#endif
  // Empty in a build without CUDA.
  const int cuda = base::runtime_version();
  info["cuda"] = cuda == 0 ? "" : base::cat(cuda / 1000, ".", cuda % 1000 / 10);
  info["cuda_architectures"] = GEAR_CUDA_ARCHITECTURES;
  info["mpi"] = transport::mpi_built_with();
  info["verbs"] = transport::verbs_built();
  info["fabric"] = transport::fabric_built();
  info["simd"] = base::simd_name(base::simd());
  info["checkpoint_format"] = store::kCheckpointFormat;
  info["threads"] = base::ThreadPool::shared_size();
  return info;
}

py::list environment() {
  py::list table;
  for (const base::EnvVar& variable : base::environment_table()) {
    table.append(py::make_tuple(std::string(variable.name), std::string(variable.default_value),
                                std::string(variable.meaning)));
  }
  return table;
}

}  // namespace

py::handle transport_error() { return g_transport; }

void register_base(py::module_& module) {
  py::register_exception_translator(translate);
  install_blocking_hooks();
  base::interrupt_check.store(&check_signals);
  module.def("raise_as", &raise_as, py::kw_only(), py::arg("InvalidArgument"),
             py::arg("OutOfMemory"), py::arg("CudaError"), py::arg("TransportError"),
             py::arg("CorruptData"), py::arg("IoError"),
             "Says which Python class each error of the core becomes.");
  module.def("version", [] { return GEAR_VERSION; });
  module.def("build_info", &build_info,
             "What was built: version, compiler, CUDA and MPI (their versions; empty: without),\n"
             "verbs and fabric (whether); and how many threads gather, once one is needed.");
  module.def("environment", &environment,
             "The environment variables for operators: (name, default, meaning).");
  module.def("send_log_to", &send_log_to, py::arg("sink"),
             "Passes log messages of the core to sink(level, message).");
}

}  // namespace gear::bindings
