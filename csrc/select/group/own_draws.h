#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include "base/threads/thread_pool.h"
#include "select/group/rank_ranges.h"
#include "select/selection.h"

namespace gear::select {

/// The draws of one batch over all ranks, and those of them that are this rank's. Large batches are
/// split over the pool: every draw is a pure function of its number.
///
///   parts of draws   | 0 ... | 1 ... | 2 ... |     each: numbers, owners, own targets
///   own              |0|1|2|                       each: its targets resolved in its place
class OwnDraws {
 public:
  OwnDraws(uint32_t rank, uint32_t size) : ranges_(rank, size), pool_(base::ThreadPool::shared()) {}

  RankRanges& ranges() { return ranges_; }

  /// Draws `count` numbers below ranges().all(): numbers(first, out) fills in those from draw
  /// `first` on, from any thread. Whose each is goes to `owners`.
  template <class Numbers>
  void find(uint64_t count, const Numbers& numbers, std::vector<uint16_t>& owners) {
    owners.resize(count);
    parts_.resize((count + kPartDraws - 1) / kPartDraws);
    pool_.parallel_for(parts_.size(), [&](size_t part) {
      const uint64_t begin = part * kPartDraws;
      const uint64_t end = std::min(begin + kPartDraws, count);
      std::array<uint64_t, kPartDraws> own;
      std::array<uint64_t, 256> targets;
      size_t kept = 0;
      for (uint64_t done = begin; done < end;) {
        const uint64_t some = std::min<uint64_t>(targets.size(), end - done);
        numbers(done, std::span(targets.data(), some));
        kept += ranges_.split({targets.data(), some}, std::span(owners).subspan(done, some),
                              own.data() + kept);
        done += some;
      }
      parts_[part].targets.assign(own.begin(), own.begin() + kept);
    });
    size_ = 0;
    for (Part& part : parts_) {
      part.begin = size_;
      size_ += part.targets.size();
    }
  }

  /// Of the last find(): how many are this rank's, and the first one's target among its items.
  uint64_t size() const { return size_; }
  uint64_t first() const {
    const auto some =
        std::ranges::find_if(parts_, [](const Part& p) { return !p.targets.empty(); });
    return some == parts_.end() ? 0 : some->targets.front();
  }

  /// Replaces `out` by the items on which they fall.
  template <class Items>
  void resolve(const store::Index& index, const Items& items, Selection& out) const {
    out.resize(size_);
    pool_.parallel_for(parts_.size(), [&](size_t p) {
      const Part& part = parts_[p];
      items.resolve(index, part.targets, ranges_.all(), out.anchors.data() + part.begin,
                    out.probabilities.data() + part.begin);
    });
  }

 private:
  static constexpr uint64_t kPartDraws = 4096;  ///< some 50 microseconds

  struct Part {
    std::vector<uint64_t> targets;  ///< of this rank's draws among the part's
    uint64_t begin = 0;             ///< place of the first one among this rank's
  };

  RankRanges ranges_;
  base::ThreadPool& pool_;
  std::vector<Part> parts_;
  uint64_t size_ = 0;
};

}  // namespace gear::select
