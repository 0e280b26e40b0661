#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <span>

#include "base/threads/fork_pause.h"

namespace gear::transport::fabric {

/// Sees that processes on other machines end, which libfabric does not tell of.
///
/// Each process listens at a socket of TCP from which it accepts nobody. The kernel makes such a
/// connection, a line, without the process, keeps it while the process is stopped or busy, and
/// breaks it when the process ends, in whatever way, or closes its LifeLines. Something between may
/// break one, too: a rank has ended if a line that was made broke and its machine refuses another.
/// Nothing is said of a rank to which no line was made, as where a firewall is between, nor of a
/// machine that is gone without a word.
///
/// One thread at a time; any may fork meanwhile.
class LifeLines {
 public:
  /// name: a socket address of this machine at which others reach it.
  explicit LifeLines(std::span<const std::byte> name);
  ~LifeLines();
  LifeLines(const LifeLines&) = delete;
  LifeLines& operator=(const LifeLines&) = delete;

  /// 0: this process cannot listen there, and others do not see its end.
  uint16_t port() const { return port_; }
  /// Begins a line to a rank, once, unless there are as many as a rank may hold.
  /// name: as it gave its constructor; port: its own.
  void watch(uint32_t rank, std::span<const std::byte> name, uint16_t port);
  bool has_ended(uint32_t rank);

 private:
  struct Address {
    sockaddr_storage bytes{};
    socklen_t size = 0;

    Address() = default;
    Address(std::span<const std::byte> name, uint16_t port);
    uint16_t& port();  ///< in network order
    sockaddr* get() { return reinterpret_cast<sockaddr*>(&bytes); }
    int open_socket() const;
  };
  struct Line {
    Address address;
    int socket = -1;  ///< -1: given up
    bool broke = false;

    void close();
    int connect();
    int error() const;
  };

  void close_all() noexcept;

  std::mutex mutex_;
  int listening_ = -1;
  uint16_t port_ = 0;
  std::map<uint32_t, Line> lines_;  ///< by rank
  std::set<uint32_t> ended_;
  base::ForkPause in_children_;  ///< a child that keeps them open would keep its parent alive
};

}  // namespace gear::transport::fabric
