#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include "base/numbers/philox.h"
#include "base/threads/thread_pool.h"
#include "select/group/group_sampler.h"

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

  /// `totals`: what each rank offers. Throws InvalidArgument when they add up to 2^63 or more.
  void set_totals(std::span<const uint64_t> totals);
  uint64_t all() const { return all_; }
  uint64_t begin() const { return begin_; }  ///< of this rank's range
  uint64_t size() const { return size_; }    ///< likewise

  /// Draws `count` targets below all(). scan(part, first, some, numbers, offsets) writes those of
  /// draws [first, first + some) that fall on `part`, as Draws::scan, from any thread. Replaces
  /// `out.own`, the items on which this rank's fall, as items.resolve() finds them, out.own_draws
  /// and out.least.
  template <class Scan, class Items>
  void draw(uint64_t count, const Scan& scan, const store::Index& index, const Items& items,
            GroupDraw& out) {
    find(count, scan);
    resolve(index, items, out);
  }

  /// The same where this rank's draws are known: their numbers, ascending, and how far into the
  /// rank's range each falls.
  template <class Items>
  void take(std::span<const uint32_t> numbers, std::span<const uint64_t> offsets,
            const store::Index& index, const Items& items, GroupDraw& out) {
    parts_.resize((numbers.size() + kPartDraws - 1) / kPartDraws);
    for (size_t p = 0; p < parts_.size(); ++p) {
      const size_t first = p * kPartDraws;
      const size_t some = std::min(kPartDraws, numbers.size() - first);
      const auto draws = numbers.subspan(first, some);
      const auto targets = offsets.subspan(first, some);
      parts_[p].draws.assign(draws.begin(), draws.end());
      parts_[p].targets.assign(targets.begin(), targets.end());
    }
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

  template <class Scan>
  void find(uint64_t count, const Scan& scan) {
    parts_.resize(size_ == 0 ? 0 : (count + kPartDraws - 1) / kPartDraws);
    pool_.parallel_for(parts_.size(), [&](size_t p) {
      std::array<uint32_t, kPartDraws + 1> draws;
      std::array<uint64_t, kPartDraws + 1> targets;
      const uint64_t first = p * kPartDraws;
      const auto some = static_cast<uint32_t>(std::min(kPartDraws, count - first));
      const base::RangePart own(begin_, size_, all_);
      const size_t kept = scan(own, first, some, draws.data(), targets.data());
      parts_[p].draws.assign(draws.begin(), draws.begin() + kept);
      parts_[p].targets.assign(targets.begin(), targets.begin() + kept);
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
      items.resolve(index, part.targets, all_, out.own.anchors.data() + part.begin, probabilities);
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
  uint64_t all_ = 0;
  uint64_t begin_ = 0;
  uint64_t size_ = 0;
  base::ThreadPool& pool_;
  std::vector<Part> parts_;
};

}  // namespace gear::select
