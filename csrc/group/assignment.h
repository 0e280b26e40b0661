#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "group/numbering.h"

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
  /// nodes[r]: number of rank r's node, from 0. `part_draws`: see Numbering.
  Assignment(std::vector<uint32_t> nodes, Locality locality,
             uint64_t part_draws = Numbering::kPartEntries);

  /// `owners`: by draw. Rank r receives draws / ranks of them, the first draws % ranks one more:
  /// every rank exactly the batch size, but at the end of an epoch. kFirst: what a rank draws
  /// beyond its share goes to ranks of its node that lack some, in the order of their numbers, then
  /// to others. In time linear in draws and ranks.
  void assign(std::span<const uint16_t> owners);

  uint16_t consumer(uint64_t draw) const { return consumers_[draw]; }
  /// Its place in the consumer's batch: consumers receive their draws in the order of the draws.
  uint32_t place(uint64_t draw) const { return places_[draw]; }
  uint64_t share(uint32_t rank) const;  ///< items of the batch of `rank`

  uint32_t num_ranks() const { return static_cast<uint32_t>(nodes_.size()); }

 private:
  /// Ranks in the order in which they take surplus; those before `first` lack nothing any more.
  struct Takers {
    std::vector<uint16_t> ranks;
    size_t first = 0;
  };

  void assign_in_order();
  void keep_shares(std::span<const uint16_t> owners);
  void give_surplus(std::span<const uint16_t> owners);
  /// The next rank that still lacks an item, which it has then; or kNobody.
  uint16_t take(Takers& takers);

  std::vector<uint32_t> nodes_;
  Locality locality_;
  Numbering numbering_;
  std::vector<Takers> ranks_of_;  ///< by node
  Takers everybody_;
  std::vector<uint16_t> consumers_;
  std::vector<uint32_t> places_;
  std::vector<std::vector<uint32_t>> surplus_;  ///< by part: draws beyond their owner's share
  std::vector<uint32_t> left_;                  ///< of them, what no rank of the node takes
  std::vector<uint32_t> lacks_;                 ///< by rank: items
};

}  // namespace gear::group
