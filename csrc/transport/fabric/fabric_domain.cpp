#include "transport/fabric/fabric_domain.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <mutex>
#include <string_view>

#include "base/environment.h"
#include "base/errors.h"
#include "transport/fabric/kept_signals.h"

namespace gear::transport::fabric {
namespace {

// Older than what any of these providers needs, so that one build fits many libraries.
constexpr uint32_t kVersion = FI_VERSION(1, 11);
// The best first; shm and others that stay within a node are none of them.
constexpr std::array<std::string_view, 8> kOrder{"cxi",   "efa",  "opx", "psm3",
                                                 "verbs", "psm2", "net", "tcp"};
constexpr std::string_view kMessagesAlone = "net";
// What the code here can do where a provider demands it.
constexpr int kMemoryModes =
    FI_MR_LOCAL | FI_MR_ENDPOINT | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;

std::string_view provider_of(const fi_info& info) { return info.fabric_attr->prov_name; }

// The place in the order; behind the last one: not to be taken unasked.
size_t place_of(const fi_info& info, FabricUse use) {
  const std::string_view name = provider_of(info);
  if (use != FabricUse::kMessages && name.starts_with(kMessagesAlone)) {
    return kOrder.size();
  }
  const auto found = std::ranges::find_if(kOrder, [name](std::string_view one) {
    return name == one || name == std::string(one) + ";ofi_rxm";
  });
  return static_cast<size_t>(found - kOrder.begin());
}

bool is_near(const fi_info& info) {
  if (info.nic == nullptr || info.nic->bus_attr == nullptr ||
      info.nic->bus_attr->bus_type != FI_BUS_PCI) {
    return false;
  }
  const fi_pci_attr& pci = info.nic->bus_attr->attr.pci;
  std::array<char, 80> path{};
  std::snprintf(path.data(), path.size(), "/sys/bus/pci/devices/%04x:%02x:%02x.%x/numa_node",
                pci.domain_id, pci.bus_id, pci.device_id, pci.function_id);
  int node = -1;
  std::ifstream(path.data()) >> node;
  unsigned own = 0;
  return node >= 0 && ::getcpu(nullptr, &own) == 0 && static_cast<unsigned>(node) == own;
}

// The first call of a process loads providers, which take signals.
int get_info(const FabricLibrary& library, const fi_info& hints, fi_info** first) {
  const auto ask = [&] { return library.getinfo(kVersion, nullptr, nullptr, 0, &hints, first); };
  static std::mutex mutex;
  static bool loaded = false;
  {
    const std::lock_guard one_thread(mutex);
    if (!loaded) {
      const KeptSignals kept;
      loaded = true;
      return ask();
    }
  }
  return ask();
}

}  // namespace

FabricChoice fabric_choice() {
  return {base::env_string("GEAR_FABRIC_PROVIDER").value_or(""),
          base::env_string("GEAR_FABRIC_DOMAIN").value_or("")};
}

FabricDomain::FabricDomain(const FabricLibrary& library, const FabricChoice& choice, FabricUse use)
    : library_(library), info_(find(choice, use)) {
  fabric_ = open_fid<fid_fabric>(library_, text() + ", fi_fabric", [&](fid_fabric** out) {
    return library_.open_fabric(info_->fabric_attr, out, nullptr);
  });
  domain_ = open_fid<fid_domain>(library_, text() + ", fi_domain", [&](fid_domain** out) {
    return ::fi_domain(fabric_.get(), info_.get(), out, nullptr);
  });
}

FabricDomain::Info FabricDomain::find(const FabricChoice& choice, FabricUse use) const {
  const InfoCloser closer{library_.freeinfo};
  const Info hints(library_.dupinfo(nullptr), closer);
  GEAR_CHECK(hints != nullptr);
  hints->caps = use == FabricUse::kMessages ? FI_MSG : FI_RMA | FI_READ | FI_REMOTE_READ;
  hints->mode = FI_CONTEXT | FI_CONTEXT2;
  hints->ep_attr->type = FI_EP_RDM;
  hints->domain_attr->threading = FI_THREAD_SAFE;
  hints->domain_attr->mr_mode = kMemoryModes;
  if (!choice.provider.empty()) {
    hints->fabric_attr->prov_name = ::strdup(choice.provider.c_str());
  }
  fi_info* first = nullptr;
  const int code = get_info(library_, *hints, &first);
  const Info list(first, closer);
  const fi_info* best = nullptr;
  std::string there;
  std::string last;
  for (const fi_info* one = first; one != nullptr; one = one->next) {
    const std::string name = base::cat(provider_of(*one), " on ", one->domain_attr->name);
    if (name != last) {
      there += (there.empty() ? "" : ", ") + name;
      last = name;
    }
    if ((choice.provider.empty() && place_of(*one, use) == kOrder.size()) ||
        (!choice.domain.empty() && choice.domain != one->domain_attr->name)) {
      continue;
    }
    if (best == nullptr || place_of(*one, use) < place_of(*best, use) ||
        (place_of(*one, use) == place_of(*best, use) && is_near(*one) && !is_near(*best))) {
      best = one;
    }
  }
  if (best == nullptr) {
    throw base::TransportError(base::cat(
        "[transport] no provider of libfabric fits",
        choice.provider.empty() ? "" : base::cat(", GEAR_FABRIC_PROVIDER='", choice.provider, "'"),
        choice.domain.empty() ? "" : base::cat(", GEAR_FABRIC_DOMAIN='", choice.domain, "'"),
        code < 0 ? base::cat(" (", library_.strerror(-code), ")") : "", ": ",
        there.empty() ? "fi_info shows those that there are"
                      : "there are " + there.substr(0, 400)));
  }
  return {library_.dupinfo(best), closer};
}

bool FabricDomain::is_over_tcp() const {
  const std::string_view name = provider_of(*info_);
  return name.starts_with("tcp") || name.starts_with(kMessagesAlone);
}

FabricNetwork FabricDomain::network() const {
  FabricNetwork network{};
  provider_of(*info_).copy(network.provider.data(), network.provider.size() - 1);
  network.address_format = info_->addr_format;
  return network;
}

std::string FabricDomain::text() const {
  return base::cat(provider_of(*info_), " on ", info_->domain_attr->name);
}

}  // namespace gear::transport::fabric
