#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace gear::transport {

using Bytes = std::span<std::byte>;
using ConstBytes = std::span<const std::byte>;

class RemoteMemory;
class RollCall;

/// Moves bytes of host memory between the ranks of a group.
///
/// Every call but name(), rank(), size(), timeout_s(), set_timeout_s() and look() is collective:
/// all ranks make the same calls in the same order, one thread at a time, and a call returns when
/// this rank's part of it is done. A rank that does not take part within timeout_s() makes the
/// others throw TransportError, which names the ranks that are missing; the transport is of no use
/// after that.
class Transport {
 public:
  virtual ~Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  /// "loopback", "shared_memory", "libfabric", "mpi", "group", "verbs", "fabric", "emulated".
  virtual std::string_view name() const noexcept = 0;
  virtual uint32_t rank() const noexcept = 0;
  virtual uint32_t size() const noexcept = 0;
  virtual double timeout_s() const noexcept = 0;
  /// Of the calls from now on, and of duplicates that are made from now on; the same on all ranks.
  /// Throws InvalidArgument unless 0 < timeout_s <= 1e8.
  virtual void set_timeout_s(double timeout_s) = 0;

  /// Throws TransportError where the group has failed, as far as this rank can tell at once; waits
  /// for nobody. For waits of a rank that are no call of its transport. Any thread, beside any
  /// call.
  virtual void look();

  /// `all` receives the bytes of rank 0, rank 1, ...: size() times mine.size(), which is the same
  /// on every rank.
  virtual void allgather(ConstBytes mine, Bytes all) = 0;

  /// to[r] goes to rank r; returns what every rank sent here, by rank. That of the own rank is
  /// to[rank()] itself; the rest lies in memory of the transport, at multiples of 16, and stays as
  /// it is until the next exchange.
  ///
  /// sizes: how many bytes come, by rank: other ones are an error, and where none come no message
  /// is sent. All ranks know them, or none does.
  virtual std::span<const ConstBytes> exchange(std::span<const ConstBytes> to,
                                               std::span<const uint64_t> sizes) = 0;
  /// The same where nobody knows what comes: every rank sends one message to each.
  std::span<const ConstBytes> exchange(std::span<const ConstBytes> to) { return exchange(to, {}); }

  /// The same where ranks know who sends whom something, and nobody how much: from[r] is 1 where
  /// rank r has bytes for this one, at least one, else 0. Pairs that have nothing send no message.
  /// That of the own rank says nothing. By two exchanges, where the transport has no better way.
  virtual std::span<const ConstBytes> exchange_sparse(std::span<const ConstBytes> to,
                                                      std::span<const uint8_t> from);

  /// The ranks that make this call too within `wait_s`, this one among them: for those that are
  /// left after a failure. All, where the transport cannot tell. Throws TransportError.
  virtual std::vector<uint32_t> present(double wait_s);

  /// Another transport between the same ranks, whose calls have no order with this one's: for
  /// another thread.
  virtual std::unique_ptr<Transport> duplicate() = 0;

  /// Lets the other ranks read `memory` of this one, which stays the caller's and outlives what is
  /// returned. Collective; null on all ranks where the transport has no reads without a partner.
  virtual std::unique_ptr<RemoteMemory> expose(Bytes memory);

  // What a transport that is made of others (by_node/) asks of them.

  /// An allgather of `ranks` alone, which ascend: `all` receives their bytes. Collective over all
  /// ranks, like every call; the others give and get nothing, and wait for nobody.
  virtual void allgather_among(std::span<const uint32_t> ranks, ConstBytes mine, Bytes all);
  /// `all` of rank `to` receives the bytes of rank 0, rank 1, ..; the others wait for nobody where
  /// the transport can, and give an empty `all`.
  virtual void gather_to(uint32_t to, ConstBytes mine, Bytes all);
  /// All ranks receive what `bytes` are on rank `from`; as many on every rank.
  virtual void broadcast(uint32_t from, Bytes bytes);
  /// Whom the call waits for that this thread is in, as far as the transport can tell.
  virtual std::vector<uint32_t> awaited();
  /// Null: the transport has none. Not collective.
  virtual std::unique_ptr<RollCall> roll_call();

 protected:
  Transport() = default;
};

}  // namespace gear::transport
