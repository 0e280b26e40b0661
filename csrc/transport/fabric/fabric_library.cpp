#include "transport/fabric/fabric_library.h"

#include <dlfcn.h>

#include "base/environment.h"
#include "base/errors.h"
#include "transport/fabric/kept_signals.h"

namespace gear::transport::fabric {
namespace {

constexpr const char* kName = "libfabric.so.1";

FabricLibrary load() {
  FabricLibrary found{};
  const auto chosen = base::env_string("GEAR_FABRIC");
  found.path = chosen.value_or(kName);
  const KeptSignals kept;
  void* const handle = ::dlopen(found.path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* const why = ::dlerror();
    throw base::TransportError(
        base::cat("[transport] libfabric cannot be loaded: ", why == nullptr ? "" : why,
                  chosen ? ": set GEAR_FABRIC to a libfabric.so.1, or unset it"
                         : ": install libfabric, load its module, or set GEAR_FABRIC to a "
                           "libfabric.so.1"));
  }
  const auto take = [&](const char* name, auto& out) {
    out = reinterpret_cast<std::remove_reference_t<decltype(out)>>(::dlsym(handle, name));
    if (out == nullptr) {
      throw base::TransportError(base::cat("[transport] ", found.path, " has no ", name,
                                           ": set GEAR_FABRIC to a libfabric.so.1"));
    }
  };
  take("fi_getinfo", found.getinfo);
  take("fi_freeinfo", found.freeinfo);
  take("fi_dupinfo", found.dupinfo);
  take("fi_fabric", found.open_fabric);
  take("fi_strerror", found.strerror);
  return found;
}

}  // namespace

const FabricLibrary& fabric_library() {
  static const FabricLibrary found = load();
  return found;
}

void check_fabric(const FabricLibrary& library, std::string_view what, int64_t code) {
  if (code < 0) {
    throw base::TransportError(
        base::cat("[transport] ", what, ": ", library.strerror(static_cast<int>(-code))));
  }
}

}  // namespace gear::transport::fabric
