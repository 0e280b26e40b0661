#pragma once

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <memory>
#include <span>
#include <thread>

#include "base/errors.h"
#include "transport/transport.h"

namespace gear::testing {

/// A TCP connection between two machines.
class Connection {
 public:
  /// Waits at `port` of this machine for the other.
  static Connection accepted(uint16_t port) {
    const Connection waiting(::socket(AF_INET, SOCK_STREAM, 0));
    const sockaddr_in any = address("0.0.0.0", port);
    if (::bind(waiting.socket_, reinterpret_cast<const sockaddr*>(&any), sizeof any) != 0 ||
        ::listen(waiting.socket_, 1) != 0) {
      throw base::TransportError(base::cat("listen: ", base::errno_text(errno)));
    }
    return Connection(::accept(waiting.socket_, nullptr, nullptr));
  }
  /// Tries until the other is there.
  static Connection made(const char* to, uint16_t port) {
    const sockaddr_in there = address(to, port);
    for (;;) {
      Connection made(::socket(AF_INET, SOCK_STREAM, 0));
      if (::connect(made.socket_, reinterpret_cast<const sockaddr*>(&there), sizeof there) == 0) {
        return made;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  }
  ~Connection() { ::close(socket_); }
  Connection(Connection&& other) noexcept : socket_(std::exchange(other.socket_, -1)) {}
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  void send(transport::ConstBytes bytes) const {
    while (!bytes.empty()) {
      bytes = bytes.subspan(moved(::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL)));
    }
  }
  void receive(transport::Bytes bytes) const {
    while (!bytes.empty()) {
      bytes = bytes.subspan(moved(::recv(socket_, bytes.data(), bytes.size(), 0)));
    }
  }

 private:
  explicit Connection(int socket) : socket_(socket) {}
  static sockaddr_in address(const char* text, uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    ::inet_pton(AF_INET, text, &address.sin_addr);
    return address;
  }
  static size_t moved(ssize_t count) {
    if (count <= 0) {
      throw base::TransportError(
          base::cat("the other machine: ", count == 0 ? "gone" : base::errno_text(errno)));
    }
    return static_cast<size_t>(count);
  }

  int socket_;
};

/// The messages of two ranks over a connection that outlives them.
class TwoMachines final : public transport::Transport {
 public:
  TwoMachines(const Connection& connection, uint32_t rank, double timeout_s)
      : connection_(connection), rank_(rank), timeout_s_(timeout_s) {}

  std::string_view name() const noexcept override { return "two machines"; }
  uint32_t rank() const noexcept override { return rank_; }
  uint32_t size() const noexcept override { return 2; }
  double timeout_s() const noexcept override { return timeout_s_; }

  void allgather(transport::ConstBytes mine, transport::Bytes all) override {
    std::ranges::copy(mine, all.subspan(rank_ * mine.size()).begin());
    exchange(mine, all.subspan((1 - rank_) * mine.size(), mine.size()));
  }
  void alltoallv(std::span<const transport::ConstBytes> to,
                 std::span<const transport::Bytes> from) override {
    std::ranges::copy(to[rank_], from[rank_].begin());
    exchange(to[1 - rank_], from[1 - rank_]);
  }
  std::unique_ptr<transport::Transport> duplicate() override {
    throw base::TransportError("two machines have one connection");
  }

 private:
  void exchange(transport::ConstBytes to, transport::Bytes from) const {
    if (rank_ == 0) {
      connection_.send(to);
      connection_.receive(from);
    } else {
      connection_.receive(from);
      connection_.send(to);
    }
  }

  const Connection& connection_;
  uint32_t rank_;
  double timeout_s_;
};

}  // namespace gear::testing
