#pragma once

#include <mpi.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "schedule/collectives.h"

namespace gear::process_group {

/// What a call does. The order is part of what ranks tell each other.
enum class Kind : uint8_t {
  kBroadcast,
  kAllReduce,
  kReduce,
  kAllGather,
  kGather,
  kScatter,
  kReduceScatter,
  kAllToAll,
  kBarrier,
  kMonitoredBarrier,
  kSend,
  kReceive,
};

std::string_view kind_name(Kind kind);

/// The private MPI communicators of a process group, and the numbers of its collective calls: the
/// n-th call of a group is the same one on all its ranks. Not thread safe: the engine's lock is
/// held around all calls, but for constructor and destructor.
class Communicator {
 public:
  /// Collective over the ranks of MPI_COMM_WORLD that are given, by rank of the group. Throws
  /// TransportError where MPI has not been initialised with MPI_THREAD_MULTIPLE, and when ranks do
  /// not come within timeout_s; what was begun goes on then, in a thread that nobody waits for.
  Communicator(const std::vector<int>& world_ranks, const std::string& name, double timeout_s);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  Place place() const noexcept { return place_; }
  /// A rank of the group in the words of an error: "1", or, where MPI's launcher, its output and
  /// the logs call it otherwise, "1 (2 of the world)".
  std::string shown(int rank) const;
  MPI_Comm collectives() const noexcept { return collectives_; }
  MPI_Comm messages() const noexcept { return messages_; }
  /// Tags of messages that users may give: 0 to this.
  int highest_tag() const noexcept { return highest_tag_; }

  uint64_t take_number(Kind kind);
  uint64_t calls_begun() const noexcept { return next_number_; }
  /// Of one of the last kKindsKept calls that have begun; of others it is not known.
  std::optional<Kind> kind_of(uint64_t number) const;
  static constexpr uint64_t kKindsKept = 1024;
  /// The tag of a call's messages. Calls of other kinds never take them.
  static int tag_of(uint64_t number, Kind kind);
  /// Of the messages in which ranks compare what they give to a call, of whatever kind.
  static int comparison_tag_of(uint64_t number);

  /// The group cannot be used again: messages of it may be under way for ever. The first words
  /// stay.
  void fail(const std::string& words) noexcept;
  const std::string& failure() const noexcept { return failure_; }

 private:
  std::vector<int> world_ranks_;
  Place place_{};
  MPI_Comm collectives_ = MPI_COMM_NULL;
  MPI_Comm messages_ = MPI_COMM_NULL;
  int highest_tag_ = 0;
  uint64_t next_number_ = 0;
  std::array<Kind, kKindsKept> kinds_{};  // of call n at n % kKindsKept
  std::string failure_;
};

/// The tags below those of calls, on Communicator::collectives.
constexpr int kAskTag = 0;
constexpr int kAnswerTag = 1;
constexpr int kWordsTag = 2;

}  // namespace gear::process_group
