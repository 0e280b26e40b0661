#include <exception>

#include "base/environment.h"
#include "base/errors.h"
#include "base/log.h"
#include "base/thread_pool.h"
#include "bindings/bindings.h"
#include "store/manifest.h"

namespace gear::bindings {
namespace {

// Exception classes live as long as the process: they may be raised during shutdown.
py::handle g_invalid_argument, g_out_of_memory, g_cuda, g_transport, g_corrupt, g_io;

py::handle make_exception(py::module_& module, const char* name, const char* doc, py::tuple bases) {
  const std::string full = std::string("gear.") + name;
  PyObject* type = PyErr_NewExceptionWithDoc(full.c_str(), doc, bases.ptr(), nullptr);
  if (type == nullptr) throw py::error_already_set();
  module.attr(name) = py::reinterpret_borrow<py::object>(type);
  return type;
}

void translate(std::exception_ptr pending) {
  if (!pending) return;
  try {
    std::rethrow_exception(pending);
  } catch (const base::InvalidArgument& error) {
    PyErr_SetString(g_invalid_argument.ptr(), error.what());
  } catch (const base::OutOfMemory& error) {
    PyErr_SetString(g_out_of_memory.ptr(), error.what());
  } catch (const base::CudaError& error) {
    PyErr_SetString(g_cuda.ptr(), error.what());
  } catch (const base::TransportError& error) {
    PyErr_SetString(g_transport.ptr(), error.what());
  } catch (const base::CorruptData& error) {
    PyErr_SetString(g_corrupt.ptr(), error.what());
  } catch (const base::IoError& error) {
    const py::object instance =
        py::reinterpret_borrow<py::object>(g_io)(error.code(), error.what());
    PyErr_SetObject(g_io.ptr(), instance.ptr());
  }
}

void register_errors(py::module_& module) {
  const auto builtin = [](PyObject* type) { return py::reinterpret_borrow<py::object>(type); };
  const py::handle root = make_exception(module, "GearError", "Base of every error of GEAR.",
                                         py::make_tuple(builtin(PyExc_Exception)));
  const auto derive = [&](const char* name, const char* doc, PyObject* base) {
    return make_exception(module, name, doc, py::make_tuple(root, builtin(base)));
  };
  g_invalid_argument =
      derive("InvalidArgument", "A value, name or combination the caller can correct.",
             PyExc_ValueError);
  g_out_of_memory =
      derive("OutOfMemory", "Memory of some tier is exhausted or was refused.", PyExc_MemoryError);
  g_cuda = derive("CudaError", "A CUDA call failed.", PyExc_RuntimeError);
  g_transport = derive("TransportError", "Moving bytes between processes or nodes failed.",
                       PyExc_RuntimeError);
  g_corrupt = derive("CorruptData", "Stored bytes are torn, truncated, foreign or too new.",
                     PyExc_RuntimeError);
  g_io = derive("IoError", "The operating system refused an operation on a file.", PyExc_OSError);
  py::register_exception_translator(translate);
}

void send_log_to(py::object sink) {
  // The sink outlives the interpreter's shutdown: it is never destroyed.
  auto* kept = new py::object(std::move(sink));
  base::set_log_sink([kept](base::Level level, std::string_view message) {
    if (!Py_IsInitialized()) return;
    const py::gil_scoped_acquire acquire;
    try {
      (*kept)(static_cast<int>(level), py::str(message.data(), message.size()));
    } catch (py::error_already_set& error) {
      error.discard_as_unraisable("gear log sink");
    }
  }, base::log_level_from_environment());
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
  info["cuda"] = false;
#if defined(__x86_64__)
  info["simd"] = __builtin_cpu_supports("avx2") ? "avx2, sse4.2 crc" : "sse2";
#else
  info["simd"] = "portable";
#endif
  info["checkpoint_format"] = store::kCheckpointFormat;
  info["threads"] = base::ThreadPool::shared().size();
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

void register_base(py::module_& module) {
  register_errors(module);
  module.def("build_info", &build_info, "What was built: version, compiler, CUDA or not.");
  module.def("environment", &environment,
             "The environment variables for operators: (name, default, meaning).");
  module.def("send_log_to", &send_log_to, py::arg("sink"),
             "Passes log messages of the core to sink(level, message).");
}

}  // namespace gear::bindings
