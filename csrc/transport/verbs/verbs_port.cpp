#include "transport/verbs/verbs_port.h"

#include <arpa/inet.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <utility>
#include <vector>

#include "base/environment.h"
#include "base/errors.h"

namespace gear::transport::verbs {
namespace {

constexpr uint32_t kMostGids = 256;
constexpr int kMostReads = 128;
constexpr uint16_t kPartition = 0x7fff;  // the last bit says whether the member is a full one

bool is_ipv4(const std::array<uint8_t, 16>& gid) {
  return std::all_of(gid.begin(), gid.begin() + 10, [](uint8_t byte) { return byte == 0; }) &&
         gid[10] == 0xff && gid[11] == 0xff;
}

bool is_link_local(const std::array<uint8_t, 16>& gid) {
  return gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80;
}

std::array<uint8_t, 16> bytes_of(const ibv_gid& gid) {
  std::array<uint8_t, 16> bytes;
  std::ranges::copy(gid.raw, bytes.begin());
  return bytes;
}

std::string gid_text(const std::array<uint8_t, 16>& gid) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  ::inet_ntop(AF_INET6, gid.data(), text.data(), text.size());
  return text.data();
}

bool is_near(const ibv_device& device) {
  int node = -1;
  std::ifstream(std::string(device.ibdev_path) + "/device/numa_node") >> node;
  unsigned own = 0;
  return node >= 0 && ::getcpu(nullptr, &own) == 0 && static_cast<unsigned>(node) == own;
}

struct Found {
  Owned<ibv_context> context;
  std::string name;
  uint8_t port = 0;
};

// Opens devices in turn until one has a port to use.
Found find_port(const VerbsLibrary& library, const PortChoice& choice) {
  int count = 0;
  ibv_device** const list = library.get_device_list(&count);
  if (list == nullptr || count == 0) {
    const int code = errno;
    if (list != nullptr) {
      library.free_device_list(list);
    }
    throw base::TransportError(
        base::cat("[transport] no RDMA device was found",
                  list == nullptr ? " (" + base::errno_text(code) + ")" : "",
                  ": ibv_devinfo shows those that there are; use transport='auto' without one"));
  }
  struct Freed {
    const VerbsLibrary& library;
    ibv_device** list;
    ~Freed() { library.free_device_list(list); }
  } const freed{library, list};
  std::vector<ibv_device*> devices(list, list + count);
  std::ranges::stable_partition(devices, [](const ibv_device* one) { return is_near(*one); });
  std::string names;
  std::string refused;
  for (ibv_device* const device : devices) {
    const std::string name = library.get_device_name(device);
    names += (names.empty() ? "" : ", ") + name;
    if (!choice.device.empty() && choice.device != name) {
      continue;
    }
    auto context = own(library.open_device(device), library.close_device);
    ibv_device_attr limits{};
    if (!context || library.query_device(context.get(), &limits) != 0) {
      refused += base::cat(refused.empty() ? "" : ", ", name, " cannot be opened (",
                           base::errno_text(errno), ")");
      continue;
    }
    for (int port = 1; port <= limits.phys_port_cnt; ++port) {
      if (choice.port != 0 && choice.port != port) {
        continue;
      }
      ibv_port_attr attributes{};
      if (library.query_port(context.get(), static_cast<uint8_t>(port), &attributes) == 0 &&
          attributes.state == IBV_PORT_ACTIVE) {
        return {std::move(context), name, static_cast<uint8_t>(port)};
      }
      refused += base::cat(refused.empty() ? "" : ", ", name, " port ", port, " is not active");
    }
  }
  if (refused.empty()) {
    throw base::TransportError(base::cat("[transport] GEAR_VERBS_DEVICE='", choice.device,
                                         choice.port == 0 ? "" : base::cat(":", choice.port),
                                         "' is no RDMA device or port here: there are ", names));
  }
  throw base::TransportError(base::cat("[transport] no RDMA port can be used: ", refused,
                                       ": see ibv_devinfo, and ip link for RoCE"));
}

}  // namespace

PortChoice port_choice() {
  PortChoice choice;
  choice.device = base::env_string("GEAR_VERBS_DEVICE").value_or("");
  if (const size_t colon = choice.device.find(':'); colon != std::string::npos) {
    const std::string port = choice.device.substr(colon + 1);
    if (port.size() != 1 || port[0] < '1' || port[0] > '9') {
      throw base::InvalidArgument(
          base::cat("[environment] GEAR_VERBS_DEVICE='", choice.device,
                    "' is not accepted: set a device's name, or name:port, as mlx5_0:1"));
    }
    choice.port = port[0] - '0';
    choice.device.resize(colon);
  }
  choice.gid_index =
      static_cast<int>(base::env_int("GEAR_VERBS_GID", 0, kMostGids - 1).value_or(-1));
  choice.pkey = static_cast<int>(base::env_int("GEAR_VERBS_PKEY", 1, 0xffff).value_or(-1));
  choice.service_level = static_cast<uint8_t>(base::env_int("GEAR_VERBS_SL", 0, 15).value_or(0));
  choice.traffic_class = static_cast<uint8_t>(base::env_int("GEAR_VERBS_TC", 0, 255).value_or(0));
  return choice;
}

bool same_family(const PortAddress& a, const PortAddress& b) {
  return a.roce == b.roce && (a.roce == 0 || is_ipv4(a.gid) == is_ipv4(b.gid));
}

std::string address_text(const PortAddress& address) {
  if (address.roce != 0) {
    return base::cat("RoCE, GID ", gid_text(address.gid));
  }
  return base::cat("InfiniBand, LID ", address.lid);
}

VerbsPort::VerbsPort(const VerbsLibrary& library, const PortChoice& choice)
    : library_(library),
      service_level_(choice.service_level),
      traffic_class_(choice.traffic_class) {
  Found found = find_port(library, choice);
  name_ = std::move(found.name);
  context_ = std::move(found.context);
  number_ = found.port;
  if (library.query_device(context_.get(), &limits_) != 0 ||
      library.query_port(context_.get(), number_, &attributes_) != 0) {
    throw base::TransportError(
        base::cat("[transport] ", name_, " does not tell what it can do: see ibv_devinfo"));
  }
  domain_ = own(library.alloc_pd(context_.get()), library.dealloc_pd);
  if (!domain_) {
    throw base::TransportError(
        base::cat("[transport] ibv_alloc_pd on ", name_, ": ", base::errno_text(errno)));
  }
  address_.lid = attributes_.lid;
  address_.mtu = static_cast<uint8_t>(attributes_.active_mtu);
  address_.reads_in = static_cast<uint8_t>(std::clamp(limits_.max_qp_rd_atom, 1, kMostReads));
  address_.reads_out = static_cast<uint8_t>(std::clamp(limits_.max_qp_init_rd_atom, 1, kMostReads));
  address_.roce = attributes_.link_layer == IBV_LINK_LAYER_ETHERNET ? 1 : 0;
  address_.global = address_.roce != 0 || (attributes_.flags & IBV_QPF_GRH_REQUIRED) != 0 ? 1 : 0;
  choose_address(choice.gid_index);
  choose_partition(choice.pkey);
}

void VerbsPort::choose_address(int wanted) {
  int best = -1;
  std::string there;
  const auto length = std::min<uint32_t>(kMostGids, static_cast<uint32_t>(attributes_.gid_tbl_len));
  for (uint32_t index = 0; index < length; ++index) {
    ibv_gid_entry entry{};
    if (library_.query_gid(context_.get(), number_, index, &entry) != 0) {
      continue;
    }
    const std::array<uint8_t, 16> gid = bytes_of(entry.gid);
    const bool v2 = entry.gid_type == IBV_GID_TYPE_ROCE_V2;
    there += base::cat(there.empty() ? "" : ", ", index, " ", gid_text(gid));
    const int rank = wanted >= 0          ? (static_cast<int>(index) == wanted ? 1 : -1)
                     : !v2                ? 0
                     : is_ipv4(gid)       ? 3
                     : is_link_local(gid) ? 1
                                          : 2;
    if (rank > best) {
      best = rank;
      gid_index_ = static_cast<uint8_t>(index);
      address_.gid = gid;
    }
  }
  if (best < 0 && (address_.global != 0 || wanted >= 0)) {
    throw base::TransportError(
        wanted >= 0
            ? base::cat("[transport] GEAR_VERBS_GID=", wanted, ": ", name_, " port ", int{number_},
                        " has no such address; it has ", there.empty() ? "none" : there)
            : base::cat("[transport] ", name_, " port ", int{number_},
                        " has no GID: give its network interface an address"));
  }
}

void VerbsPort::choose_partition(int wanted) {
  if (wanted < 0) {
    return;
  }
  for (uint16_t index = 0; index < attributes_.pkey_tbl_len; ++index) {
    __be16 key = 0;
    if (library_.query_pkey(context_.get(), number_, index, &key) == 0 &&
        (ntohs(key) & kPartition) == (wanted & kPartition)) {
      pkey_index_ = index;
      return;
    }
  }
  throw base::TransportError(base::cat("[transport] GEAR_VERBS_PKEY=", wanted, ": ", name_,
                                       " port ", int{number_},
                                       " is in no such partition: see ibv_devinfo -v"));
}

std::string VerbsPort::text() const {
  const std::string address = address_.global == 0
                                  ? base::cat("LID ", address_.lid)
                                  : base::cat("GID ", int{gid_index_}, " ", gid_text(address_.gid));
  return base::cat(name_, " port ", int{number_}, ", ", address_.roce != 0 ? "RoCE" : "InfiniBand",
                   ", ", address, ", MTU ", 128 << address_.mtu);
}

}  // namespace gear::transport::verbs
