#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <vector>

#include "base/threads/fork_pause.h"
#include "transport/transport.h"

namespace gear::transport::fabric {

/// Sees that processes on other machines end, which libfabric does not tell of.
///
/// Each process listens at a socket of TCP from which it accepts nobody. The kernel makes such a
/// connection, a line, without the process, keeps it while the process is stopped or busy, and
/// breaks it when the process ends, in whatever way. Nothing is said of a rank to which no line was
/// made, as where a firewall refuses, nor of a machine that is gone without a word.
///
/// One thread at a time.
class LifeLines {
 public:
  /// name: a socket address of this machine at which others reach it. Throws TransportError.
  explicit LifeLines(std::span<const std::byte> name);
  ~LifeLines();
  LifeLines(const LifeLines&) = delete;
  LifeLines& operator=(const LifeLines&) = delete;

  uint16_t port() const { return port_; }
  /// Begins a line to a rank, unless there is one, or are as many as a rank may hold.
  /// name: as it gave its constructor; port: its own.
  void watch(uint32_t rank, std::span<const std::byte> name, uint16_t port);
  /// Whether a rank's line was made, and broke.
  bool has_ended(uint32_t rank);

 private:
  void close_all() noexcept;

  int listening_ = -1;
  uint16_t port_ = 0;
  std::map<uint32_t, int> lines_;  ///< rank -> socket
  std::set<uint32_t> ended_;
  base::ForkPause in_children_;  ///< a child that keeps them open would keep its parent alive
};

}  // namespace gear::transport::fabric
