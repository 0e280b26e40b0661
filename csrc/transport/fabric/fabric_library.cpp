#include "transport/fabric/fabric_library.h"

#include <dlfcn.h>

#include <array>
#include <cstdlib>

#include "base/environment.h"
#include "base/errors.h"
#include "transport/fabric/kept_signals.h"

namespace gear::transport::fabric {
namespace {

constexpr const char* kName = "libfabric.so.1";

// Its tcp, called net in 1.16 and 1.17, reads them when it is first asked for anything.
struct Setting {
  const char* name;
  const char* value;
};
constexpr std::array<Setting, 3> kWhereNobodyHas{{
    // 1,024 buffers of 16 KiB for what nobody has asked for yet, by its own default.
    {"FI_TCP_MAX_RX_SIZE", "1024"},
    // Of a message that a full socket takes nothing of, up to 9,000 bytes wait, by its own default,
    // for the next call of a rank that may make none, and are said to have left.
    {"FI_TCP_STAGING_SBUF_SIZE", "0"},
    {"FI_NET_STAGING_SBUF_SIZE", "0"},
}};

FabricLibrary load() {
  FabricLibrary found{};
  const auto chosen = base::env_string("GEAR_FABRIC");
  found.path = chosen.value_or(kName);
  for (const Setting& one : kWhereNobodyHas) {
    static_cast<void>(::setenv(one.name, one.value, 0));  // fails only where memory does
  }
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
