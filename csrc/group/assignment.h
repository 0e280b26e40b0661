#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/host_device.h"
#include "base/names.h"

namespace gear::group {

enum class Locality : uint8_t {
  kFirst,  ///< ranks keep what was drawn from their own shards up to their share
  kOff,    ///< draw i goes to rank i / batch size
};

inline constexpr base::Names<Locality, 2> kLocalities{"[loader] locality", {"first", "off"}};

/// Items of a batch that `rank` receives: every rank exactly the batch size, but at the end of an
/// epoch, where the first items % ranks of them receive one more than the others.
GEAR_HD inline uint64_t share_of(uint64_t items, uint32_t ranks, uint32_t rank) {
  return items / ranks + (rank < items % ranks ? 1 : 0);
}

/// Draws [first, first + count) of an owner's own, in places [place, place + count) of the
/// consumer's batch.
struct AssignedRun {
  uint32_t consumer;
  uint32_t first;
  uint32_t place;
  uint32_t count;

  friend bool operator==(const AssignedRun&, const AssignedRun&) = default;
};

/// Which rank receives which draw of a global batch, locality="first": a function of how many draws
/// fell on each rank, and of the ranks' nodes. Every rank works out its own part of it. A batch is
/// exchangeable: who consumes which draw does not change the mean over all of them.
///
/// A rank keeps its first draws, up to its share. What it draws beyond is surplus, what it draws
/// less it lacks; both are laid end to end, by rank, and meet position by position:
///
///     node 0   surplus  |--- rank 0 ---|- 2 -|         node 1   surplus  (none)
///              lack     |-- rank 1 --|                          lack     |- 3 -|
///                                    `------´  left, meets ──────────────`
///
/// within each node first, then what is left of all nodes. A consumer's batch has its own draws,
/// then those of its node, then the others.
class Assignment {
 public:
  /// nodes[r]: number of rank r's node, from 0.
  explicit Assignment(std::vector<uint32_t> nodes);

  /// The runs of `owner`: what it keeps, then by consumer what goes to its node, then by consumer
  /// what goes to others; none is empty. `counts`: draws by owner. O(ranks). Valid until the next
  /// call.
  std::span<const AssignedRun> runs(std::span<const uint64_t> counts, uint32_t owner);

 private:
  /// Where draws, or the places that are free for them, lie among those of several ranks.
  struct Stretch {
    uint64_t begin = 0;  ///< those of the ranks before
    uint64_t size = 0;
  };
  struct Part {
    uint64_t kept = 0;
    Stretch surplus, lack;            ///< in the node
    Stretch left_surplus, left_lack;  ///< of them, at their end: what no rank of the node meets
  };

  void divide(std::span<const uint64_t> counts);
  void meet(uint32_t consumer, Stretch surplus, uint64_t first, Stretch lack, uint64_t place);

  std::vector<uint32_t> nodes_;
  std::vector<Part> parts_;       ///< by rank
  std::vector<Stretch> surplus_;  ///< by node
  std::vector<Stretch> lack_;     ///< likewise
  std::vector<AssignedRun> runs_;
};

}  // namespace gear::group
