#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "memory/shared/process_identity.h"
#include "transport/collective.h"

namespace gear::transport {

/// The memory that the ranks of a shared_memory transport have in common, zeros at first:
///
///     | Lobby | Member of rank 0 | 1 | ... | outboxes of rank 0: even, odd | of rank 1 | ...
///
/// Ranks proceed in rounds. In round k a rank fills its outbox of k's parity, stores k to its
/// Member::round, waits for each other rank's k and reads that rank's outbox. It fills the same
/// outbox again in round k + 2: all others have stored k + 1 by then, which each does only after it
/// has read what it wanted of round k. So two outboxes are enough, and nobody waits to be read.
/// A gather to one rank and its broadcast wait for less: shared_memory.cpp says why that is enough.
static_assert(std::atomic<uint32_t>::is_always_lock_free);

enum class MemberState : uint32_t { kAbsent = 0, kTaken = 1, kJoined = 2, kLeft = 3 };

struct alignas(64) Member {
  /// Rounds published. Stored with release after the outbox is filled; an acquire load that sees k
  /// sees the outbox. A futex: waiters sleep on it.
  std::atomic<uint32_t> round;

  /// Ranks that sleep on `round`. Added to before the last look at `round`, read after storing
  /// `round`, all four of them sequentially consistent: either the waiter sees the round or the
  /// storing rank sees the sleeper.
  std::atomic<uint32_t> sleepers;

  /// MemberState. kTaken by compare-exchange, so that no two are the same rank; kJoined with
  /// release after the fields below.
  std::atomic<uint32_t> state;

  memory::ProcessIdentity process;
  std::array<uint64_t, 16> cpus;  ///< bit c: it may run on CPU c
};

enum class FailureState : uint32_t { kNone = 0, kWriting = 1, kFailed = 2 };

struct alignas(64) Lobby {
  std::atomic<uint32_t> ready;  ///< stored by rank 0 with release after `size`
  uint32_t size;

  /// FailureState. The rank that leaves kNone by compare-exchange writes the text, then stores
  /// kFailed with release. For good: every rank throws from then on.
  alignas(64) std::atomic<uint32_t> failed;
  std::array<char, 1020> failure;
};

inline constexpr uint64_t kUnknown = UINT64_MAX;

/// What an outbox holds for one rank.
struct Entry {
  uint64_t total;     ///< bytes of the whole call for that rank
  uint64_t expected;  ///< that the owner of the outbox wants from that rank, or kUnknown
  uint64_t offset;    ///< in the outbox's data
  uint64_t bytes;     ///< of this round
};

struct alignas(64) Outbox {
  Call call;
  uint32_t more;   ///< not 0: the owner needs a further round of this call
  uint64_t total;  ///< of allgather: bytes of the whole call
  // Entries by rank (exchange), then data.
};

inline constexpr uint64_t kOutboxDataBytes = uint64_t{64} << 10;

class SharedLayout {
 public:
  explicit SharedLayout(uint32_t size) : size_(size) {}

  uint64_t bytes() const { return outbox_offset(size_, 0); }

  Lobby& lobby(std::byte* memory) const { return *reinterpret_cast<Lobby*>(memory); }
  Member& member(std::byte* memory, uint32_t rank) const {
    return *reinterpret_cast<Member*>(memory + sizeof(Lobby) + rank * sizeof(Member));
  }
  Outbox& outbox(std::byte* memory, uint32_t rank, uint32_t round) const {
    return *reinterpret_cast<Outbox*>(memory + outbox_offset(rank, round));
  }
  Entry* entries(Outbox& outbox) const { return reinterpret_cast<Entry*>(&outbox + 1); }
  std::byte* data(Outbox& outbox) const {
    return reinterpret_cast<std::byte*>(&outbox + 1) + entry_bytes();
  }

 private:
  uint64_t entry_bytes() const { return (size_ * sizeof(Entry) + 63) / 64 * 64; }
  uint64_t outbox_offset(uint32_t rank, uint32_t round) const {
    const uint64_t stride = sizeof(Outbox) + entry_bytes() + kOutboxDataBytes;
    return sizeof(Lobby) + size_ * sizeof(Member) + (uint64_t{2} * rank + round % 2) * stride;
  }

  uint32_t size_;
};

}  // namespace gear::transport
