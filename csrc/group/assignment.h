#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/host_device.h"
#include "base/names.h"
#include "select/group/group_draw.h"

namespace gear::group {

enum class Locality : uint8_t {
  kFirst,  ///< ranks keep what was drawn from their own shards up to their share
  kOff,    ///< draw i goes to rank i / batch size
};

inline constexpr base::Names<Locality, 2> kLocalities{"[loader] locality", {"first", "off"}};

/// Items of a batch of all ranks. Throws InvalidArgument for 2^32 or more: draws are numbered in 32
/// bits.
uint64_t items_of_all(uint64_t batch_size, uint32_t ranks);

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
  /// By owner: 1 where `consumer` receives any of its draws. O(ranks).
  void sources(std::span<const uint64_t> counts, uint32_t consumer, std::vector<uint8_t>& out);

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

/// What each rank receives of the draws that fall on one of them, by either locality.
class Deal {
 public:
  /// Of the draws of `rank`. nodes[r]: number of rank r's node, from 0.
  Deal(const std::vector<uint32_t>& nodes, uint32_t rank, Locality locality);

  /// Whether it needs GroupDraw::own_draws.
  bool by_number() const { return locality_ == Locality::kOff; }

  /// Replaces what follows. O(ranks), and the rank's own draws.
  void deal(const select::GroupDraw& draw);
  /// By consumer: its items among the rank's draws, and their places in its batch; both ascend.
  const std::vector<std::vector<uint32_t>>& which() const { return which_; }
  const std::vector<std::vector<uint32_t>>& places() const { return places_; }
  /// By owner: 1 where any of its draws may be this rank's; of locality="first", are.
  const std::vector<uint8_t>& sources() const { return sources_; }
  /// By consumer: 1 where it takes this rank for one of its sources.
  const std::vector<uint8_t>& targets() const { return targets_; }

 private:
  void deal_by_counts(const select::GroupDraw& draw);
  void deal_by_number(const select::GroupDraw& draw);
  void give(uint32_t consumer, uint32_t own, uint32_t place);

  Assignment assignment_;
  uint32_t rank_;
  Locality locality_;
  std::vector<std::vector<uint32_t>> which_;
  std::vector<std::vector<uint32_t>> places_;
  std::vector<uint8_t> sources_;
  std::vector<uint8_t> targets_;
};

}  // namespace gear::group
