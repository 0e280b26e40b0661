#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "group/assignment.h"
#include "select/group/group_sampler.h"
#include "store/shard.h"

namespace gear::group {

/// The draws of one rank of many, without the others: what a batch of all of them costs it between
/// its messages. To measure by, in one process.
///
/// The others' shards are taken to offer what this one does, and of the draws that do not fall here
/// each of them to hold about as many, apart from the mean as a random draw's are.
class LoneDraw {
 public:
  /// Of rank 0. nodes[r]: number of rank r's node, from 0. A law by chance. Throws as
  /// select::GroupSampler, and for a batch over all ranks of 2^32 items or more.
  LoneDraw(std::shared_ptr<store::Shard> shard, const select::SamplerOptions& options,
           uint64_t batch_size, Locality locality, const std::vector<uint32_t>& nodes);

  /// The next batch's, and who consumes which; returns how many fall on this rank: 0 at the end of
  /// an epoch, too. What is drawn does not count in the shard.
  uint64_t draw();
  /// Of the last batch, by rank: how many of all draws are taken to fall on it.
  std::span<const uint64_t> counts() const { return draw_.counts; }

 private:
  void count_others(uint64_t own, std::span<uint64_t> counts);

  std::shared_ptr<store::Shard> shard_;
  uint64_t items_;  ///< of all ranks
  uint32_t ranks_;
  Deal deal_;
  std::optional<select::GroupSampler> sampler_;
  uint64_t batches_ = 0;
  std::vector<std::byte> offers_;
  select::GroupDraw draw_;
};

}  // namespace gear::group
