#include "transport/nccl/nccl_library.h"

#include <dlfcn.h>

#include <filesystem>
#include <vector>

#include "base/environment.h"
#include "base/errors.h"

namespace gear::transport::nccl {
namespace {

constexpr int kOldest = 21800;
constexpr const char* kName = "libnccl.so.2";

// Where package managers of Python put NCCL, as seen from the folder that holds GEAR's package.
std::string beside_package() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(&beside_package), &info) == 0) {
    return kName;
  }
  const std::filesystem::path module = info.dli_fname;
  return module.parent_path().parent_path() / "nvidia" / "nccl" / "lib" / kName;
}

struct Opened {
  void* handle = nullptr;
  std::string path;
};

Opened open() {
  std::string tried;
  const auto attempt = [&](const std::string& path, int flags) -> void* {
    void* const handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | flags);
    if (handle == nullptr && (flags & RTLD_NOLOAD) == 0) {
      const char* const why = ::dlerror();
      tried += base::cat(tried.empty() ? "" : "; ", why == nullptr ? path : why);
    }
    return handle;
  };
  if (const auto chosen = base::env_string("GEAR_NCCL")) {
    if (void* handle = attempt(*chosen, 0)) {
      return {handle, *chosen};
    }
    throw base::TransportError(base::cat("[transport] GEAR_NCCL='", *chosen, "' cannot be loaded: ",
                                         tried, ": set it to a libnccl.so.2, or unset it"));
  }
  if (void* handle = attempt(kName, RTLD_NOLOAD)) {
    return {handle, kName};
  }
  for (const std::string& path : {std::string(kName), beside_package()}) {
    if (void* handle = attempt(path, 0)) {
      return {handle, path};
    }
  }
  throw base::TransportError(
      base::cat("[transport] no NCCL was found: none is loaded, and ", tried,
                ": import torch (a build for GPUs) first, or set GEAR_NCCL to a libnccl.so.2"));
}

template <class Function>
void find(const Opened& opened, const char* name, Function& out) {
  out = reinterpret_cast<Function>(::dlsym(opened.handle, name));
  if (out == nullptr) {
    throw base::TransportError(base::cat("[transport] ", opened.path, " has no ", name,
                                         ": NCCL 2.18 or newer is needed; set GEAR_NCCL to one"));
  }
}

Library load() {
  const Opened opened = open();
  Library found{};
  found.path = opened.path;
  find(opened, "ncclGetVersion", found.get_version);
  const Result status = found.get_version(&found.version);
  if (status != kSuccess || found.version < kOldest) {
    throw base::TransportError(
        base::cat("[transport] ", opened.path, " is NCCL ", version_text(found.version),
                  "; 2.18 or newer is needed: set GEAR_NCCL to one, or update torch"));
  }
  find(opened, "ncclGetErrorString", found.get_error_string);
  find(opened, "ncclGetLastError", found.get_last_error);
  find(opened, "ncclGetUniqueId", found.get_unique_id);
  find(opened, "ncclCommInitRankConfig", found.comm_init_rank_config);
  find(opened, "ncclCommGetAsyncError", found.comm_get_async_error);
  find(opened, "ncclCommFinalize", found.comm_finalize);
  find(opened, "ncclCommDestroy", found.comm_destroy);
  find(opened, "ncclCommAbort", found.comm_abort);
  find(opened, "ncclGroupStart", found.group_start);
  find(opened, "ncclGroupEnd", found.group_end);
  find(opened, "ncclSend", found.send);
  find(opened, "ncclRecv", found.recv);
  return found;
}

}  // namespace

const Library& library() {
  static const Library found = load();
  return found;
}

std::string version_text(int version) {
  // 2.8 and older counted in thousands.
  if (version < 10000) {
    return base::cat(version / 1000, ".", version % 1000 / 100, ".", version % 100);
  }
  return base::cat(version / 10000, ".", version % 10000 / 100, ".", version % 100);
}

}  // namespace gear::transport::nccl
