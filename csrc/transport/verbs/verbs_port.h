#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "transport/verbs/verbs_library.h"

namespace gear::transport::verbs {

/// What an operator may say about the port.
struct PortChoice {
  std::string device;  ///< "mlx5_0"; empty: the nearest with an active port
  int port = 0;        ///< 0: the first active one
  int gid_index = -1;  ///< -1: RoCE v2 over IPv4, else IPv6, else link-local
  int pkey = -1;       ///< partition; -1: the first of the port's table
  uint8_t service_level = 0;
  uint8_t traffic_class = 0;
};

/// GEAR_VERBS_DEVICE ("mlx5_0" or "mlx5_0:1"), GEAR_VERBS_GID, GEAR_VERBS_PKEY, GEAR_VERBS_SL,
/// GEAR_VERBS_TC. Throws InvalidArgument.
PortChoice port_choice();

/// How other ranks reach a port; travels to them as it is.
struct PortAddress {
  std::array<uint8_t, 16> gid;
  uint16_t lid;
  uint8_t mtu;        ///< an ibv_mtu
  uint8_t reads_in;   ///< so many reads of a queue pair at once are answered
  uint8_t reads_out;  ///< and made
  uint8_t roce;       ///< 0 or 1
  uint8_t global;     ///< 0 or 1: packets carry the gid
  uint8_t zero;
};

/// Whether one port can reach the other: both InfiniBand or both RoCE, addresses of one family.
bool same_family(const PortAddress& a, const PortAddress& b);
/// "RoCE, GID ::ffff:10.0.0.1".
std::string address_text(const PortAddress& address);

/// One port of one RDMA device, open. Any thread.
class VerbsPort {
 public:
  /// Takes, of the active ports that `choice` allows, the first of a device on the CPU's own NUMA
  /// node, else the first of all. `library` outlives it. Throws TransportError.
  VerbsPort(const VerbsLibrary& library, const PortChoice& choice);

  const VerbsLibrary& library() const { return library_; }
  ibv_context* context() const { return context_.get(); }
  ibv_pd* domain() const { return domain_.get(); }
  const PortAddress& address() const { return address_; }
  uint8_t number() const { return number_; }
  uint8_t gid_index() const { return gid_index_; }
  uint16_t pkey_index() const { return pkey_index_; }
  uint8_t service_level() const { return service_level_; }
  uint8_t traffic_class() const { return traffic_class_; }
  const ibv_device_attr& limits() const { return limits_; }
  uint64_t most_message_bytes() const { return attributes_.max_msg_sz; }
  const std::string& device_name() const { return name_; }
  /// "rxe0 port 1, RoCE, GID 1 ::ffff:10.0.0.1, MTU 4096".
  std::string text() const;

 private:
  void choose_address(int wanted);
  void choose_partition(int wanted);

  const VerbsLibrary& library_;
  std::string name_;
  Owned<ibv_context> context_;
  Owned<ibv_pd> domain_;
  ibv_device_attr limits_{};
  ibv_port_attr attributes_{};
  uint8_t number_ = 0;
  uint8_t gid_index_ = 0;
  uint16_t pkey_index_ = 0;
  uint8_t service_level_;
  uint8_t traffic_class_;
  PortAddress address_{};
};

}  // namespace gear::transport::verbs
