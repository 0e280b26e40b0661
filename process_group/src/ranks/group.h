#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ranks/wire.h"

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

/// What a rank knows of its process group: the names of its ranks, the numbers of its collective
/// calls (the n-th call of a group is the same one on all its ranks), and whether it has failed.
/// Not thread safe: the engine's lock is held around all calls.
class Group {
 public:
  /// `world_ranks`: by rank of the group, what the launcher calls it. `wire` is told of a failure.
  Group(std::vector<int> world_ranks, Wire& wire)
      : world_ranks_(std::move(world_ranks)), wire_(wire) {}

  /// A rank in the words of an error: "1", or, where the launcher, its output and the logs call it
  /// otherwise, "1 (2 of the world)".
  std::string shown(int rank) const;

  uint64_t take_number(Kind kind);
  uint64_t calls_begun() const noexcept { return next_number_; }
  /// Of one of the last kKindsKept calls that have begun; of others it is not known.
  std::optional<Kind> kind_of(uint64_t number) const;
  static constexpr uint64_t kKindsKept = 1024;
  /// The tag of a call's messages. Calls of other kinds never take them.
  static int tag_of(uint64_t number, Kind kind);
  /// Of the messages in which ranks compare what they give to a call, of whatever kind.
  static int comparison_tag_of(uint64_t number);
  /// Of all these.
  static int highest_tag();

  /// The group cannot be used again. The first words stay.
  void fail(const std::string& words) noexcept;
  const std::string& failure() const noexcept { return failure_; }

 private:
  std::vector<int> world_ranks_;
  Wire& wire_;
  uint64_t next_number_ = 0;
  std::array<Kind, kKindsKept> kinds_{};  // of call n at n % kKindsKept
  std::string failure_;
};

/// The tags below those of calls, on Wire::Line::kCalls.
constexpr int kAskTag = 0;
constexpr int kAnswerTag = 1;
constexpr int kWordsTag = 2;

}  // namespace gear::process_group
