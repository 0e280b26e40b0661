#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/cuda/cuda.h"
#include "store/drawable/fixed_point.h"

namespace gear::group {

/// Ranks of a node that draw on their GPUs together.
constexpr uint32_t kMostGpuRanks = 16;

/// What a rank tells the others at a meeting.
struct Said {
  uint64_t total = 0;  ///< of the weights of its shard
  int32_t shift = 0;   ///< of their scale
  float largest = 0;   ///< priority seen so far
  float least = 0;     ///< probability among its own draws of the batch
};

/// Where a rank's stream finds what it says, in memory of its GPU; null: nothing of that kind.
struct SaidAt {
  const uint64_t* total = nullptr;
  const store::WeightScale* scale = nullptr;
  float* largest = nullptr;  ///< becomes that of all ranks
  float* least = nullptr;    ///< becomes infinity
  /// Words for the host, which are in `noted` (pinned memory) before it sees that all have met, and
  /// zero here then.
  static constexpr uint32_t kNoted = 32;
  uint32_t* to_note = nullptr;
  uint32_t* noted = nullptr;
};

/// A rank's mailbox: memory of its GPU that every rank's kernels write.
struct Mailbox {
  uint64_t came[kMostGpuRanks];  ///< by rank: the last meeting that it came to
  Said said[2][kMostGpuRanks];   ///< at that meeting and the one before, by whether it is odd
  uint32_t lost;                 ///< ranks that this one gave up, a bit each
};

/// One meeting, as a rank's kernel comes to it: see device_meeting.cuh.
struct Meeting {
  Mailbox* mailboxes[kMostGpuRanks];  ///< by rank
  SaidAt said;
  uint64_t* met;  ///< words of the host
  uint32_t* missing;
  const uint32_t* give_up;
  uint64_t number;  ///< from 1; 0: none
  uint64_t timeout_ns;
  uint32_t rank;
  uint32_t size;
};

/// The GPUs of a group meet: what a rank's stream was given behind a kernel that came to a meeting
/// runs once every rank's kernel has come to it, and sees all that their streams wrote before. No
/// host waits. Every rank makes the same meetings in the same order.
///
/// A rank that waits longer than timeout_s, or whose host gives up, goes on without those that are
/// missing, at this meeting and all later ones; what it then finds in its memory are words of
/// earlier batches. Whoever delivers a batch looks at state() first.
class DeviceMeeting {
 public:
  /// `mailboxes`: by rank, as kernels of `device` reach them; zeroed.
  DeviceMeeting(uint32_t rank, std::span<Mailbox* const> mailboxes, double timeout_s, int device);

  /// The next meeting, for a kernel that comes to it.
  Meeting next(const SaidAt& said);
  /// What every rank said at the last meeting that was made, by rank, in memory of this rank's GPU:
  /// until this rank comes to the next but one.
  const Said* said() const { return mailboxes_[rank_]->said[meetings_ % 2]; }

  /// Of the host's view, from any thread.
  struct State {
    uint64_t met;      ///< the last meeting to which all have come
    uint32_t missing;  ///< ranks that did not come to the one after it, a bit each; 0: none yet
  };
  State state() const;
  /// Ends all waits, now and later.
  void give_up();

 private:
  /// Between the host and the kernels.
  struct Words {
    uint64_t met;
    uint32_t missing;
    uint32_t give_up;
  };

  uint32_t rank_;
  uint32_t size_;
  Mailbox* mailboxes_[kMostGpuRanks] = {};
  uint64_t timeout_ns_;
  base::PinnedArray<Words> words_;
  uint64_t meetings_ = 0;
};

/// A kernel on `stream` that comes to the meeting, and does nothing else.
void meet(const Meeting& meeting, cudaStream_t stream);
/// What a kernel of so many blocks is to come to: the meeting, or where they are too many none,
/// behind a kernel of its own.
Meeting meet_first(const Meeting& meeting, uint64_t blocks, cudaStream_t stream);

}  // namespace gear::group
