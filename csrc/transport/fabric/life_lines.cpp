#include "transport/fabric/life_lines.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/errors.h"

namespace gear::transport::fabric {
namespace {

// Those that a rank waits for first are the ones that it hears from in every allgather; any rank is
// so watched by some, who tell the others.
constexpr size_t kMostLines = 16;
constexpr int kMostThatWatch = 4096;

struct Address {
  sockaddr_storage bytes{};
  socklen_t size;

  Address(std::span<const std::byte> name, uint16_t port)
      : size(static_cast<socklen_t>(std::min(name.size(), sizeof bytes))) {
    std::memcpy(&bytes, name.data(), size);
    auto& its_port = bytes.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(bytes).sin6_port
                                                 : reinterpret_cast<sockaddr_in&>(bytes).sin_port;
    its_port = ::htons(port);
  }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&bytes); }
};

int open_socket(const Address& address) {
  return ::socket(address.bytes.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

enum class State { kLives, kEnded, kUnknown };

State state_of(int line) {
  std::byte none{};
  const ssize_t count = ::recv(line, &none, 1, MSG_PEEK);
  if (count >= 0) {
    return State::kEnded;
  }
  switch (errno) {
    case EAGAIN:  // of one that is being made, too
      return State::kLives;
    case ECONNRESET:  // it was made; one that is refused says ECONNREFUSED
      return State::kEnded;
    default:
      return State::kUnknown;
  }
}

}  // namespace

LifeLines::LifeLines(std::span<const std::byte> name)
    : in_children_([] {},
                   [this](base::ForkPause::Side side) {
                     if (side == base::ForkPause::Side::kChild) {
                       close_all();
                     }
                   }) {
  Address own(name, 0);
  listening_ = open_socket(own);
  if (listening_ < 0 || ::bind(listening_, own.get(), own.size) != 0 ||
      ::listen(listening_, kMostThatWatch) != 0 ||
      ::getsockname(listening_, own.get(), &own.size) != 0) {
    const std::string why = base::errno_text(errno);
    close_all();
    throw base::TransportError(base::cat(
        "[transport] a socket by which other nodes see that this process lives: ", why,
        ": allow more open files (ulimit -n), or name another interface in GEAR_FABRIC_DOMAIN"));
  }
  port_ =
      ::ntohs(own.bytes.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(own.bytes).sin6_port
                                              : reinterpret_cast<sockaddr_in&>(own.bytes).sin_port);
}

LifeLines::~LifeLines() { close_all(); }

void LifeLines::close_all() noexcept {
  if (listening_ >= 0) {
    ::close(std::exchange(listening_, -1));
  }
  for (const auto& [rank, line] : lines_) {
    ::close(line);
  }
  lines_.clear();
}

void LifeLines::watch(uint32_t rank, std::span<const std::byte> name, uint16_t port) {
  if (lines_.size() >= kMostLines || lines_.contains(rank) || ended_.contains(rank)) {
    return;
  }
  Address its(name, port);
  const int line = open_socket(its);
  if (line < 0) {
    return;
  }
  if (::connect(line, its.get(), its.size) == 0 || errno == EINPROGRESS) {
    lines_.emplace(rank, line);
  } else {
    ::close(line);
  }
}

bool LifeLines::has_ended(uint32_t rank) {
  const auto place = lines_.find(rank);
  if (place != lines_.end()) {
    const State state = state_of(place->second);
    if (state != State::kLives) {
      ::close(place->second);
      lines_.erase(place);
    }
    if (state == State::kEnded) {
      ended_.insert(rank);
    }
  }
  return ended_.contains(rank);
}

}  // namespace gear::transport::fabric
