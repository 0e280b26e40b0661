#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include "base/threads/thread_pool.h"
#include "select/group/group_sampler.h"
#include "store/index/sum_tree.h"

namespace gear::select {

/// The draws of one batch over all ranks, and those of them that are this rank's. What the ranks
/// offer lies end to end, by rank; a draw is the rank's in whose range its target falls. Large
/// batches are split over the pool: every draw is a pure function of its number. Cost: a search
/// among the ranks' running sums, one level of a tree for every factor of 16.
///
///   targets          0 ........ t0 ............... t0+t1 ... all()
///                    rank 0     | rank 1           | ...
///   parts of draws   | 0 ... | 1 ... | 2 ... |     each: targets, owners, what is this rank's
///   own              |0|1|2|                       each: its own resolved in its place
class OwnDraws {
 public:
  OwnDraws(uint32_t rank, uint32_t size);

  /// `totals`: what each rank offers. Throws InvalidArgument when they add up to 2^63 or more.
  void set_totals(std::span<const uint64_t> totals);
  uint64_t all() const { return tree_.total(); }

  /// Draws `count` targets below all(): targets(first, out) fills in those from draw `first` on,
  /// from any thread. Replaces `out`: whose each is, and the items on which this rank's fall, as
  /// items.resolve() finds them.
  template <class Targets, class Items>
  void draw(uint64_t count, const Targets& targets, const store::Index& index, const Items& items,
            GroupDraw& out) {
    find(count, targets, out.owners);
    resolve(index, items, out);
  }

 private:
  static constexpr uint64_t kPartDraws = 4096;  ///< some 50 microseconds
  static constexpr uint64_t kAtOnce = 256;      ///< targets that stay in the nearest cache

  struct Part {
    std::vector<uint32_t> draws;    ///< this rank's among the part's
    std::vector<uint64_t> targets;  ///< of each, how far into the rank's range
    uint64_t begin = 0;             ///< place of the first one among this rank's
    float least = 0;                ///< probability of them
  };

  template <class Targets>
  void find(uint64_t count, const Targets& targets_from, std::vector<uint16_t>& owners) {
    owners.resize(count);
    parts_.resize((count + kPartDraws - 1) / kPartDraws);
    pool_.parallel_for(parts_.size(), [&, rank = rank_, whose = owners.data()](size_t p) {
      std::array<uint32_t, kPartDraws> own_draws;
      std::array<uint64_t, kPartDraws> own_targets;
      std::array<uint64_t, kAtOnce> targets;
      std::array<store::SumTree::Hit, kAtOnce> hits;
      const uint64_t end = std::min((p + 1) * kPartDraws, count);
      size_t own = 0;
      for (uint64_t first = p * kPartDraws; first < end; first += kAtOnce) {
        const uint64_t some = std::min(kAtOnce, end - first);
        targets_from(first, std::span(targets.data(), some));
        tree_.find({targets.data(), some}, {hits.data(), some});
        // Every target is written and only this rank's stay: draws are random, a branch would be
        // too.
        for (uint64_t i = 0; i < some; ++i) {
          whose[first + i] = static_cast<uint16_t>(hits[i].leaf);
          own_draws[own] = static_cast<uint32_t>(first + i);
          own_targets[own] = hits[i].remainder;
          own += hits[i].leaf == rank ? 1 : 0;
        }
      }
      parts_[p].draws.assign(own_draws.begin(), own_draws.begin() + own);
      parts_[p].targets.assign(own_targets.begin(), own_targets.begin() + own);
    });
  }

  template <class Items>
  void resolve(const store::Index& index, const Items& items, GroupDraw& out) {
    uint64_t own = 0;
    for (Part& part : parts_) {
      part.begin = own;
      own += part.draws.size();
    }
    out.own.resize(own);
    out.own_draws.resize(own);
    pool_.parallel_for(parts_.size(), [&](size_t p) {
      Part& part = parts_[p];
      float* const probabilities = out.own.probabilities.data() + part.begin;
      items.resolve(index, part.targets, all(), out.own.anchors.data() + part.begin, probabilities);
      std::ranges::copy(part.draws, out.own_draws.data() + part.begin);
      part.least = GroupDraw::kNone;
      for (size_t i = 0; i < part.draws.size(); ++i) {
        part.least = std::min(part.least, probabilities[i]);
      }
    });
    out.least = GroupDraw::kNone;
    for (const Part& part : parts_) {
      out.least = std::min(out.least, part.least);
    }
  }

  uint32_t rank_;
  store::SumTree tree_;
  base::ThreadPool& pool_;
  std::vector<Part> parts_;
};

}  // namespace gear::select
