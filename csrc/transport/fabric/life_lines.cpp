#include "transport/fabric/life_lines.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace gear::transport::fabric {
namespace {

// Those that a rank waits for first are the ones that it hears from in every allgather; any rank is
// so watched by some, who tell the others.
constexpr size_t kMostLines = 16;
constexpr int kMostThatWatch = 4096;

}  // namespace

LifeLines::Address::Address(std::span<const std::byte> name, uint16_t its_port)
    : size(static_cast<socklen_t>(std::min(name.size(), sizeof bytes))) {
  std::memcpy(&bytes, name.data(), size);
  port() = ::htons(its_port);
}

uint16_t& LifeLines::Address::port() {
  return bytes.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(bytes).sin6_port
                                     : reinterpret_cast<sockaddr_in&>(bytes).sin_port;
}

int LifeLines::Address::open_socket() const {
  return ::socket(bytes.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

void LifeLines::Line::close() {
  if (socket >= 0) {
    ::close(std::exchange(socket, -1));
  }
}

// Returns the error with which that failed at once, or 0.
int LifeLines::Line::connect() {
  close();
  socket = address.open_socket();
  const bool begun =
      socket >= 0 && (::connect(socket, address.get(), address.size) == 0 || errno == EINPROGRESS);
  return begun ? 0 : errno;
}

// What has become of it: 0, it stands or is being made.
int LifeLines::Line::error() const {
  std::byte none{};
  const ssize_t count = ::recv(socket, &none, 1, MSG_PEEK);
  if (count >= 0) {
    return ECONNRESET;
  }
  return errno == EAGAIN ? 0 : errno;
}

LifeLines::LifeLines(std::span<const std::byte> name)
    : in_children_([this] { mutex_.lock(); },
                   [this](base::ForkPause::Side side) {
                     if (side == base::ForkPause::Side::kChild) {
                       close_all();
                     }
                     mutex_.unlock();
                   }) {
  Address own(name, 0);
  listening_ = own.open_socket();
  if (listening_ >= 0 && ::bind(listening_, own.get(), own.size) == 0 &&
      ::listen(listening_, kMostThatWatch) == 0 &&
      ::getsockname(listening_, own.get(), &own.size) == 0) {
    port_ = ::ntohs(own.port());
  }
}

LifeLines::~LifeLines() {
  const std::lock_guard guard(mutex_);
  close_all();
}

void LifeLines::close_all() noexcept {
  if (listening_ >= 0) {
    ::close(std::exchange(listening_, -1));
  }
  for (auto& [rank, line] : lines_) {
    line.close();
  }
}

void LifeLines::watch(uint32_t rank, std::span<const std::byte> name, uint16_t port) {
  const std::lock_guard guard(mutex_);
  if (lines_.size() >= kMostLines || lines_.contains(rank)) {
    return;
  }
  Line& line = lines_[rank];
  line.address = Address(name, port);
  if (line.connect() != 0) {
    line.close();
  }
}

bool LifeLines::has_ended(uint32_t rank) {
  const std::lock_guard guard(mutex_);
  const auto place = lines_.find(rank);
  if (place == lines_.end() || place->second.socket < 0) {
    return ended_.contains(rank);
  }
  Line& line = place->second;
  int error = line.error();
  if (error == ECONNRESET) {  // of one that was made; one that was not says ECONNREFUSED
    line.broke = true;
    error = line.connect();
    error = error == 0 ? line.error() : error;
  }
  if (line.broke && error == ECONNREFUSED) {
    ended_.insert(rank);
  }
  if (error != 0 && error != ECONNRESET) {
    line.close();
  }
  return ended_.contains(rank);
}

}  // namespace gear::transport::fabric
