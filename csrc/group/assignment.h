#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/threads/thread_pool.h"

namespace gear::group {

enum class Locality : uint8_t {
  kFirst,  ///< ranks keep what was drawn from their own shards up to their share
  kOff,    ///< draw i goes to rank i / batch size
};

/// "first", "off". Throws InvalidArgument.
Locality parse_locality(std::string_view text);

/// Which rank receives which draw of a global batch. Every rank computes the same from the same
/// draws: nothing is exchanged. A batch is exchangeable: who consumes which draw does not change
/// the mean over all of them.
class Assignment {
 public:
  /// Large batches are assigned in parts of so many draws or more, which the pool shares.
  static constexpr uint64_t kPartDraws = 16384;

  /// nodes[r]: number of rank r's node, from 0.
  Assignment(std::vector<uint32_t> nodes, Locality locality, uint64_t part_draws = kPartDraws);

  /// `owners`: by draw. Rank r receives draws / ranks of them, the first draws % ranks one more:
  /// every rank exactly the batch size, but at the end of an epoch. kFirst: what a rank draws
  /// beyond its share goes to ranks of its node that lack some, in the order of their numbers, then
  /// to others. In time linear in draws and ranks.
  void assign(std::span<const uint16_t> owners);

  uint16_t consumer(uint64_t draw) const { return consumers_[draw]; }
  /// Its place in the consumer's batch: consumers receive their draws in the order of the draws.
  uint32_t place(uint64_t draw) const { return places_[draw]; }
  uint64_t share(uint32_t rank) const;  ///< items of the batch of `rank`

  uint32_t node(uint32_t rank) const { return nodes_[rank]; }
  uint32_t num_ranks() const { return static_cast<uint32_t>(nodes_.size()); }

 private:
  /// Ranks in the order in which they take surplus; those before `first` lack nothing any more.
  struct Takers {
    std::vector<uint16_t> ranks;
    size_t first = 0;
  };

  void assign_in_order();
  void assign_locally(std::span<const uint16_t> owners);
  /// visit(part, draw, n) for every draw, n of which went to the same of `ranks` before it.
  template <class Visit>
  void number(std::span<const uint16_t> ranks, const Visit& visit);
  size_t num_parts() const;
  /// The next rank that still lacks an item, which it has then; or kNobody.
  uint16_t take(Takers& takers);

  std::vector<uint32_t> nodes_;
  Locality locality_;
  uint64_t part_draws_;
  base::ThreadPool& pool_;
  std::vector<Takers> ranks_of_;  ///< by node
  Takers everybody_;
  std::vector<uint16_t> consumers_;
  std::vector<uint32_t> places_;
  std::vector<uint32_t> counts_;                   ///< by part and rank
  std::vector<std::vector<uint32_t>> surplus_of_;  ///< by part
  std::vector<uint32_t> surplus_;                  ///< draws beyond their owner's share
  std::vector<uint32_t> shares_;                   ///< by rank
  std::vector<uint32_t> spare_;                    ///< by rank: items that it still lacks
};

}  // namespace gear::group
