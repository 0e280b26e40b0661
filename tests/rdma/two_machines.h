#pragma once

#include <cstdint>
#include <utility>

#include "ranks.h"

namespace gear::testing {

/// A TCP connection between two machines.
class Connection {
 public:
  /// Tries until the other listens there.
  static Connection made(const char* to, uint16_t port);
  explicit Connection(int socket);
  ~Connection();
  Connection(Connection&& other) noexcept : socket_(std::exchange(other.socket_, -1)) {}
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  void send(transport::ConstBytes bytes) const;
  /// Throws TransportError where the other is gone.
  void receive(transport::Bytes bytes) const;

 private:
  int socket_;
};

/// A port of this machine.
class Listener {
 public:
  /// 0: any that is free.
  explicit Listener(uint16_t port);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  uint16_t port() const;
  /// Throws TransportError if nobody comes within 200 s.
  Connection accept() const;

 private:
  int socket_;
};

/// Messages of ranks in two machines, 10.77.0.1 and 10.77.0.2: rank r is in machine r % 2, and null
/// in the other. The first has them all in a loopback; a thread there makes the calls of each rank
/// that is in the second, and tells it by a connection of its own what came. Both machines make the
/// same groups in the same order.
Ranks messages_between_machines(uint32_t machine, uint32_t size, double timeout_s);

}  // namespace gear::testing
