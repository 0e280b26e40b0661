#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace gear::base {

/// The exceptions of the core. Every one that a user can cause is an `Error`; `bindings/` maps each
/// class once to Python. A message reads
///
///     [area] what failed: given, allowed, what to do
///
/// and is complete: callers add nothing to it and never parse it.
class Error : public std::runtime_error {
 public:
  /// A byte 0 in it, which would end it for whoever reads what(), is shown as \\0.
  explicit Error(const std::string& message);
};

/// A value, name or combination that the caller can correct (Python: ValueError).
class InvalidArgument : public Error {
 public:
  using Error::Error;
};

/// Memory of some tier is exhausted or was refused (Python: MemoryError).
class OutOfMemory : public Error {
 public:
  using Error::Error;
};

/// A CUDA call failed (Python: RuntimeError).
class CudaError : public Error {
 public:
  using Error::Error;
};

/// Moving bytes between processes or nodes failed (Python: RuntimeError).
class TransportError : public Error {
 public:
  using Error::Error;
};

/// Stored bytes are torn, truncated, foreign or of a newer format (Python: RuntimeError).
class CorruptData : public Error {
 public:
  using Error::Error;
};

/// The operating system refused an operation on a file or on shared memory (Python: OSError).
class IoError : public Error {
 public:
  /// `code` is the `errno` of the failed call.
  IoError(const std::string& message, int code) : Error(message), code_(code) {}

  int code() const noexcept { return code_; }

 private:
  int code_;
};

/// The arguments written one after the other with `operator<<`, for building messages.
template <class... Args>
std::string cat(const Args&... args) {
  std::ostringstream out;
  (out << ... << args);
  return out.str();
}

/// Text of an `errno` value ("No space left on device"); thread safe.
std::string errno_text(int code);

/// Throws std::logic_error("[internal] file:line: expression is false"); what GEAR_CHECK calls.
[[noreturn]] void fail_check(const char* expression, const char* file, int line);

}  // namespace gear::base

/// An invariant of the core itself, checked in every build type. It is never the way to report what
/// a user did: a failure means a defect in GEAR and surfaces as std::logic_error.
#define GEAR_CHECK(condition)                                   \
  do {                                                          \
    if (!(condition)) [[unlikely]] {                            \
      ::gear::base::fail_check(#condition, __FILE__, __LINE__); \
    }                                                           \
  } while (false)
