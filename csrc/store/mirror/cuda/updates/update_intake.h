#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/cuda/staging.h"

namespace gear::store {

/// One priority on its way into a mirror.
struct alignas(16) UpdateEntry {
  int64_t id;  ///< negative: of a call that was refused
  float priority;
  uint32_t order;  ///< of the entries that name a step, the one of the highest order counts
};

/// Entries that are applied together, in the order of their segments and, inside of one, of
/// UpdateEntry::order: those of an UpdateIntake, or what several ranks have written into memory of
/// this GPU, a segment each.
struct UpdateSegments {
  /// Before a segment that says how many entries it has, as many entries' room for that number.
  static constexpr uint64_t kHeader = 4;

  const UpdateEntry* entries;  ///< entry i of segment s: at first + s * stride + i, masked
  uint64_t mask;
  uint64_t first;
  uint64_t stride;
  uint32_t num_segments;
  uint32_t most;    ///< entries of a segment
  uint32_t orders;  ///< UpdateEntry::order lies below
  bool counted;     ///< a uint64_t, kHeader entries before the first, says how many there are; else
                    ///< there are `most`
};

/// Updates of priorities as a GPU takes them from its callers: call after call, checked, in a ring
/// of its memory.
///
///     caller's stream    makes ids, priorities ── take_in ── may reuse them
///                                                    │
///     ring               [begin ─────────────── end) ▼
///                          │
///     mirror's stream      └── kernels read ── release
///
/// One kernel a call, on the stream that made the arrays, which so never waits for the mirror's;
/// arrays of the host, or of another GPU, are copied first. The host never waits for a caller's
/// stream, and for the mirror's only where arrays of the host are four calls ahead of it.
/// Under its owner's lock.
class UpdateIntake {
 public:
  /// Where a call was refused; written by the GPU into mapped memory, `call` last.
  struct Failure {
    uint64_t call;  ///< its number, from 1; 0: nothing failed
    uint64_t position;
    int64_t id;
    float priority;
  };

  /// Ids may be of the ranks from `first_owner` on, `num_slots` says of how many and what each has
  /// room for. `stream` is the mirror's, and outlives this object. Throws OutOfMemory.
  UpdateIntake(uint32_t first_owner, std::span<const uint64_t> num_slots,
               const base::Stream& stream);
  /// Waits for who reads or writes the ring.
  ~UpdateIntake();
  UpdateIntake(const UpdateIntake&) = delete;
  UpdateIntake& operator=(const UpdateIntake&) = delete;

  /// Takes a call's arrays, as Mirror::update has them; what is put on the mirror's stream from
  /// here on finds them in the ring, `order` counting from 0. Allocates only where more are in the
  /// ring than ever before.
  void keep(const int64_t* ids, const float* priorities, uint64_t count, bool on_device,
            cudaStream_t made_on);

  /// Whether keep() of arrays of the host would not wait for the mirror's stream.
  bool has_room() const { return staging_.has_free(); }

  /// Positions of what is kept; an entry lies at ring()[position & mask()].
  uint64_t begin() const { return begin_; }
  uint64_t end() const { return end_; }
  const UpdateEntry* ring() const { return ring_.get(); }
  uint64_t mask() const { return ring_.size() - 1; }

  /// What lies below `position` is read no more by what is put on the mirror's stream from here on.
  void release(uint64_t position);

  /// What is kept, without what was refused; releases it. Waits for the mirror's stream.
  std::vector<UpdateEntry> fetch();

  /// Throws InvalidArgument where an earlier call was refused, once for each of the last 64; does
  /// not wait.
  void raise_failed();

  /// A call on its way through its kernel.
  struct CallState {
    unsigned long long first_bad;  ///< position, or ~0
    unsigned blocks_done;
  };

 private:
  static constexpr uint64_t kCalls = 64;  ///< whose kernels may run at once
  static constexpr size_t kParts = 4;
  static constexpr size_t kMarks = 4;

  /// A position and when the mirror's stream has read all below it.
  struct Mark {
    uint64_t position = 0;
    base::Event read;
  };

  /// Lets `writer` fill `count` entries from end() on.
  void make_room(uint64_t count, cudaStream_t writer);
  void grow(uint64_t count);
  void mark();

  const base::Stream& stream_;
  int device_;
  uint32_t first_owner_;
  base::DeviceArray<uint64_t> num_slots_;                  ///< by owner
  base::DeviceArray<CallState> states_;                    ///< by number of the call, modulo kCalls
  base::PinnedArray<Failure> failures_;                    ///< likewise
  std::vector<base::Event> taken_in_;                      ///< likewise: when its kernel has run
  uint64_t number_ = 0;                                    ///< of the last call
  base::DeviceArray<UpdateEntry> ring_;                    ///< a power of two of them
  std::vector<base::DeviceArray<UpdateEntry>> old_rings_;  ///< to free memory waits for the GPU
  uint64_t begin_ = 0;
  uint64_t end_ = 0;
  uint64_t free_until_ = 0;  ///< what lies below was read for certain
  std::vector<Mark> marks_;
  size_t next_mark_ = 0;
  uint64_t marked_ = 0;    ///< position of the last mark
  base::Staging staging_;  ///< arrays from elsewhere, a call a part: ids, then priorities
};

}  // namespace gear::store
