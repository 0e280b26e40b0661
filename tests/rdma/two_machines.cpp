#include "two_machines.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/errors.h"
#include "transport/collective.h"
#include "transport/inbox.h"
#include "transport/loopback.h"

namespace gear::testing {
namespace {

using transport::Bytes;
using transport::Call;
using transport::ConstBytes;
using transport::Transport;

constexpr const char* kFirst = "10.77.0.1";
constexpr uint16_t kPort = 18516;
constexpr int kAcceptMs = 200'000;

sockaddr_in address_of(const char* text, uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  ::inet_pton(AF_INET, text, &address.sin_addr);
  return address;
}

size_t moved(ssize_t count) {
  if (count <= 0) {
    throw base::TransportError(
        base::cat("the other machine: ", count == 0 ? "gone" : base::errno_text(errno)));
  }
  return static_cast<size_t>(count);
}

template <class T>
void put(const Connection& to, const T& value) {
  to.send(std::as_bytes(std::span(&value, 1)));
}

template <class T>
T get(const Connection& from) {
  T value{};
  from.receive(std::as_writable_bytes(std::span(&value, 1)));
  return value;
}

struct Member {
  uint32_t rank;
  uint32_t size;
  double timeout_s;
  bool operator==(const Member&) const = default;
};

// How long the entries of a call are.
using Lengths = std::vector<uint64_t>;

void put_all(const Connection& to, std::span<const uint64_t> lengths) {
  put(to, static_cast<uint32_t>(lengths.size()));
  to.send(std::as_bytes(lengths));
}

Lengths get_all(const Connection& from) {
  Lengths lengths(get<uint32_t>(from));
  from.receive(std::as_writable_bytes(std::span(lengths)));
  return lengths;
}

template <class Entries>
Lengths lengths_of(const Entries& entries) {
  Lengths lengths;
  for (const auto& entry : entries) {
    lengths.push_back(entry.size());
  }
  return lengths;
}

std::vector<std::vector<std::byte>> room_for(const Lengths& lengths) {
  std::vector<std::vector<std::byte>> room;
  for (const uint64_t length : lengths) {
    room.emplace_back(length);
  }
  return room;
}

// Of a rank in the second machine. A call is: which, the lengths of what is sent, the sizes of what
// comes where they are known, and what is sent; the answer, the words of an error or none, the
// lengths of what came, and that.
class FarRank final : public Transport {
 public:
  FarRank(Connection connection, const Member& member)
      : connection_(std::move(connection)), member_(member), inbox_(member.size) {}

  std::string_view name() const noexcept override { return "two machines"; }
  uint32_t rank() const noexcept override { return member_.rank; }
  uint32_t size() const noexcept override { return member_.size; }
  double timeout_s() const noexcept override { return member_.timeout_s; }
  void set_timeout_s(double timeout_s) override { member_.timeout_s = timeout_s; }

  void allgather(ConstBytes mine, Bytes all) override {
    transport::check_allgather(size(), mine, all);
    const uint64_t bytes = all.size();
    const Lengths came = call(Call::kAllgather, {&mine, 1}, {&bytes, 1});
    connection_.receive(all.first(came.at(0)));
  }
  std::span<const ConstBytes> exchange(std::span<const ConstBytes> to,
                                       std::span<const uint64_t> sizes) override {
    transport::check_exchange(rank(), size(), to, sizes);
    return pass(to, sizes);
  }
  std::span<const ConstBytes> exchange_sparse(std::span<const ConstBytes> to,
                                              std::span<const uint8_t> from) override {
    transport::check_sparse(rank(), size(), to, from);
    return pass(to, transport::some_sizes(rank(), to, from));
  }
  std::unique_ptr<Transport> duplicate() override {
    call(Call::kDuplicate, {}, {});
    return std::make_unique<FarRank>(Connection::made(kFirst, get<uint16_t>(connection_)), member_);
  }

 private:
  // Sizes may be kSome: a loopback tells the ranks of this machine what comes.
  std::span<const ConstBytes> pass(std::span<const ConstBytes> to,
                                   std::span<const uint64_t> sizes) {
    const Lengths came = call(Call::kExchange, to, sizes);
    inbox_.begin(came);
    for (uint32_t r = 0; r < came.size(); ++r) {
      inbox_.add(r, came[r]);
      connection_.receive({inbox_.place(r, 0), came[r]});
    }
    return inbox_.all(rank(), to[rank()]);
  }

  // Returns how long the entries are that come now.
  Lengths call(Call call, std::span<const ConstBytes> to, std::span<const uint64_t> sizes) {
    put(connection_, call);
    put_all(connection_, lengths_of(to));
    put_all(connection_, sizes);
    for (const ConstBytes entry : to) {
      connection_.send(entry);
    }
    std::string error(get<uint64_t>(connection_), '\0');
    connection_.receive(std::as_writable_bytes(std::span(error)));
    if (!error.empty()) {
      throw base::TransportError(error);
    }
    return get_all(connection_);
  }

  Connection connection_;
  Member member_;
  transport::Inbox inbox_;
};

// Makes the calls of a rank of the second machine until that goes.
void serve(const Connection& far, const std::shared_ptr<Transport>& rank);

void serve_in_background(Connection far, std::unique_ptr<Transport> rank) {
  std::thread([far = std::move(far), rank = std::shared_ptr<Transport>(std::move(rank))]() mutable {
    try {
      serve(far, rank);
    } catch (const base::TransportError&) {  // it is gone
      rank.reset();
    }
  }).detach();
}

void serve(const Connection& far, const std::shared_ptr<Transport>& rank) {
  for (;;) {
    const auto call = get<Call>(far);
    auto to = room_for(get_all(far));
    const Lengths sizes = get_all(far);
    std::vector<std::byte> all;
    std::vector<ConstBytes> from;
    for (std::vector<std::byte>& entry : to) {
      far.receive(entry);
    }
    std::unique_ptr<Transport> second;
    std::string error;
    try {
      if (call == Call::kAllgather) {
        all.resize(sizes.at(0));
        rank->allgather(to.at(0), all);
        from = {all};
      } else if (call == Call::kExchange) {
        const auto came = rank->exchange(std::vector<ConstBytes>(to.begin(), to.end()), sizes);
        from.assign(came.begin(), came.end());
      } else {
        second = rank->duplicate();
      }
    } catch (const base::TransportError& failure) {
      error = failure.what();
    }
    put(far, uint64_t{error.size()});
    far.send(std::as_bytes(std::span(error)));
    if (!error.empty()) {
      continue;
    }
    put_all(far, lengths_of(from));
    for (const ConstBytes entry : from) {
      far.send(entry);
    }
    if (second) {
      const Listener listener(0);
      put(far, listener.port());
      serve_in_background(listener.accept(), std::move(second));
    }
  }
}

}  // namespace

Connection Connection::made(const char* to, uint16_t port) {
  const sockaddr_in there = address_of(to, port);
  for (;;) {
    Connection made(::socket(AF_INET, SOCK_STREAM, 0));
    if (::connect(made.socket_, reinterpret_cast<const sockaddr*>(&there), sizeof there) == 0) {
      return made;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

Connection::Connection(int socket) : socket_(socket) {
  const int on = 1;  // calls are short and wait for their answers
  static_cast<void>(::setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on));
}

Connection::~Connection() { ::close(socket_); }

void Connection::send(ConstBytes bytes) const {
  while (!bytes.empty()) {
    bytes = bytes.subspan(moved(::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL)));
  }
}

void Connection::receive(Bytes bytes) const {
  while (!bytes.empty()) {
    bytes = bytes.subspan(moved(::recv(socket_, bytes.data(), bytes.size(), 0)));
  }
}

Listener::Listener(uint16_t port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
  const sockaddr_in any = address_of("0.0.0.0", port);
  const int on = 1;  // connections of an earlier process may linger
  if (::setsockopt(socket_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      ::bind(socket_, reinterpret_cast<const sockaddr*>(&any), sizeof any) != 0 ||
      ::listen(socket_, 16) != 0) {
    throw base::TransportError(base::cat("port ", port, ": ", base::errno_text(errno)));
  }
}

Listener::~Listener() { ::close(socket_); }

uint16_t Listener::port() const {
  sockaddr_in own{};
  socklen_t bytes = sizeof own;
  ::getsockname(socket_, reinterpret_cast<sockaddr*>(&own), &bytes);
  return ntohs(own.sin_port);
}

Connection Listener::accept() const {
  pollfd ready{socket_, POLLIN, 0};
  if (::poll(&ready, 1, kAcceptMs) != 1) {
    throw base::TransportError("the other machine has not come");
  }
  return Connection(::accept(socket_, nullptr, nullptr));
}

Ranks messages_between_machines(uint32_t machine, uint32_t size, double timeout_s) {
  Ranks ranks(size);
  if (machine == 1) {
    for (uint32_t r = 1; r < size; r += 2) {
      const Member member{r, size, timeout_s};
      Connection connection = Connection::made(kFirst, kPort);
      put(connection, member);
      ranks[r] = std::make_unique<FarRank>(std::move(connection), member);
    }
    return ranks;
  }
  static const Listener listener(kPort);
  ranks = transport::make_loopback(size, timeout_s);
  for (uint32_t r = 1; r < size; r += 2) {
    Connection far = listener.accept();
    if (get<Member>(far) != Member{r, size, timeout_s}) {
      throw base::TransportError("the other machine makes another group: are its tests the same?");
    }
    serve_in_background(std::move(far), std::move(ranks[r]));
  }
  return ranks;
}

}  // namespace gear::testing
