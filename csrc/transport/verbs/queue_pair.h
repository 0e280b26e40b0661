#pragma once

#include <cstdint>

#include "transport/verbs/verbs_port.h"

namespace gear::transport::verbs {

/// How the other end of a connection finds a queue pair; travels to it as it is.
struct QueuePairAddress {
  uint32_t number;
  uint32_t first_packet;
};

/// One end of a reliable connection, over which reads go in both directions.
class QueuePair {
 public:
  /// For up to `depth` reads at a time, which `completions` ends. Both are the caller's and outlive
  /// it, like the port. Throws TransportError.
  QueuePair(const VerbsPort& port, ibv_cq* completions, uint32_t depth);

  QueuePairAddress address() const { return address_; }

  /// Connects it with a queue pair behind `port` of another rank. A read that is not answered
  /// within 4 us * 2^timeout is sent again, 6 times. Throws TransportError.
  void connect(const PortAddress& port, QueuePairAddress other, uint8_t timeout);

  /// Posts a list of reads. Throws TransportError.
  void post(ibv_send_wr* first);

 private:
  void modify(ibv_qp_attr& attributes, int mask, const char* state);

  const VerbsPort& port_;
  Owned<ibv_qp> pair_;
  QueuePairAddress address_{};
};

/// The largest time-out of a queue pair, as QueuePair::connect has it, whose repetitions all end
/// within `timeout_s`; of 12 (17 ms) to 18 (1.1 s).
uint8_t packet_timeout(double timeout_s);

}  // namespace gear::transport::verbs
