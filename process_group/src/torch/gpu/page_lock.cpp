#include "torch/gpu/page_lock.h"

#include <dlfcn.h>
#include <link.h>

#include <string>

#include "base/errors.h"
#include "base/gpu/beside_captures.h"

namespace gear::process_group {
namespace {

constexpr unsigned kPortable = 1;  // for all devices: cudaHostRegisterPortable, hipHostRegister...

struct Runtime {
  int (*lock)(void*, size_t, unsigned) = nullptr;
  int (*unlock)(void*) = nullptr;
  const char* (*words)(int) = nullptr;
  int (*forget_error)() = nullptr;
};

// The names are those of CUDA's and of ROCm's runtime; both return 0 for success.
Runtime runtime_of(void* library, const std::string& prefix) {
  const auto find = [&](const char* name) { return ::dlsym(library, (prefix + name).c_str()); };
  return {reinterpret_cast<int (*)(void*, size_t, unsigned)>(find("HostRegister")),
          reinterpret_cast<int (*)(void*)>(find("HostUnregister")),
          reinterpret_cast<const char* (*)(int)>(find("GetErrorString")),
          reinterpret_cast<int (*)()>(find("GetLastError"))};
}

// torch opens its libraries for itself alone: they are found by their paths.
Runtime find_runtime() {
  std::string path;
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* to) {
        const std::string of_one = info->dlpi_name;
        if (of_one.find("/libcudart.so") == std::string::npos &&
            of_one.find("/libamdhip64.so") == std::string::npos) {
          return 0;
        }
        *static_cast<std::string*>(to) = of_one;
        return 1;
      },
      &path);
  void* const library = path.empty() ? nullptr : ::dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) {
    return {};
  }
  return runtime_of(library, path.find("/libcudart.so") != std::string::npos ? "cuda" : "hip");
}

const Runtime& runtime() {
  static const Runtime found = find_runtime();
  return found;
}

[[noreturn]] void refuse(uint64_t bytes, const std::string& why) {
  throw base::TransportError(base::cat("[mpi] ", bytes,
                                       " bytes that the ranks of this node share cannot be "
                                       "page-locked: ",
                                       why,
                                       "; set GEAR_MPI_CUDA=messages on all ranks, with which "
                                       "tensors of GPUs go by messages of MPI"));
}

}  // namespace

PageLock::PageLock(std::byte* data, uint64_t bytes) : data_(data) {
  const Runtime& by = runtime();
  if (by.lock == nullptr || by.unlock == nullptr || by.words == nullptr ||
      by.forget_error == nullptr) {
    refuse(bytes, "torch has loaded neither libcudart nor libamdhip64");
  }
  const base::BesideCaptures beside;
  if (const int code = by.lock(data, bytes, kPortable); code != 0) {
    static_cast<void>(by.forget_error());  // else torch finds it at its next call
    refuse(bytes, by.words(code));
  }
}

// At the end of the process the runtime may be gone: it refuses then, and nothing is lost.
PageLock::~PageLock() {
  const base::BesideCaptures beside;
  static_cast<void>(runtime().unlock(data_));
}

}  // namespace gear::process_group
