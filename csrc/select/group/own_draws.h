#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "base/threads/thread_pool.h"
#include "select/chance.h"
#include "select/group/group_draw.h"
#include "select/group/rank_total.h"
#include "select/space.h"

namespace gear::select {

/// The draws of one batch over all ranks that are this rank's. What the ranks offer lies end to
/// end, by rank; a draw is the rank's in whose range its target falls. Every rank looks at all
/// draws and keeps its own, and knows of no other's owner. Large batches are split over the pool:
/// every draw is a pure function of its number.
///
///   targets          0 ........ t0 ............... t0+t1 ... all()
///                    rank 0     | rank 1           | ...
///   parts of draws   | 0 ... | 1 ... | 2 ... |     each: what is this rank's
///   own              |0|1|2|                       each: its own resolved in its place
class OwnDraws {
 public:
  explicit OwnDraws(uint32_t rank);

  /// `offers`: what each rank does. Where the units of this rank are finer than those of all, the
  /// place in its range is drawn from what is left of the generator's bits.
  void set_offers(std::span<const RankTotal> offers);
  uint64_t all() const { return all_; }
  double all_here() const { return all_here_; }  ///< the same in this rank's units
  uint64_t begin() const { return begin_; }      ///< of this rank's range
  uint64_t size() const { return size_; }        ///< likewise

  /// Of the `count` draws that chance.next() accounted for, below all(): replaces `out.own`, the
  /// items of this shard on which its own fall, out.own_draws and out.least.
  template <class Items = Space>
  void draw(uint64_t count, const Chance& chance, const store::Index& index, const Items& items,
            GroupDraw& out) {
    find(count, chance);
    resolve(index, items, out);
  }

  /// The same where this rank's draws are known: their numbers, ascending, and how far into the
  /// rank's range each falls.
  template <class Items = Space>
  void take(std::span<const uint32_t> numbers, std::span<const uint64_t> offsets,
            const store::Index& index, const Items& items, GroupDraw& out) {
    divide(numbers, offsets);
    resolve(index, items, out);
  }

 private:
  static constexpr uint64_t kPartDraws = 4096;  ///< some 10 microseconds

  struct Part {
    std::vector<uint32_t> draws;    ///< this rank's among the part's
    std::vector<uint64_t> targets;  ///< of each, how far into the rank's range
    uint64_t begin = 0;             ///< place of the first one among this rank's
    float least = 0;                ///< probability of them
  };

  void find(uint64_t count, const Chance& chance);
  void divide(std::span<const uint32_t> numbers, std::span<const uint64_t> offsets);
  /// How many draws all parts have.
  uint64_t number_parts();
  void find_least(GroupDraw& out) const;

  template <class Items>
  void resolve(const store::Index& index, const Items& items, GroupDraw& out) {
    const uint64_t own = number_parts();
    out.own.resize(own);
    out.own_draws.resize(own);
    pool_.parallel_for(parts_.size(), [&](size_t p) {
      Part& part = parts_[p];
      float* const probabilities = out.own.probabilities.data() + part.begin;
      items.resolve(index, part.targets, all_here_, out.own.anchors.data() + part.begin,
                    probabilities);
      std::ranges::copy(part.draws, out.own_draws.data() + part.begin);
      part.least = GroupDraw::kNone;
      for (size_t i = 0; i < part.draws.size(); ++i) {
        part.least = std::min(part.least, probabilities[i]);
      }
    });
    find_least(out);
  }

  uint32_t rank_;
  uint64_t all_ = 0;
  uint64_t begin_ = 0;
  uint64_t size_ = 0;
  uint64_t places_ = 0;  // of this rank's range, in its own units
  double all_here_ = 0;  // all of it, in those
  base::ThreadPool& pool_;
  std::vector<Part> parts_;
};

}  // namespace gear::select
