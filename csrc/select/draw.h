#pragma once

#include <algorithm>
#include <array>
#include <span>

#include "base/numbers/philox.h"
#include "select/sampler.h"

namespace gear::select {

/// Counter-based draws of the policies that leave it to chance.
class Draws {
 public:
  explicit Draws(uint64_t seed) : seed_(seed) {}

  uint64_t made() const { return made_; }
  void restore(uint64_t made) { made_ = made; }

  /// targets[i] uniform in [0, range), from the next draws.
  void fill(uint64_t range, std::span<uint64_t> targets) {
    fill_ahead(0, range, targets);
    skip(targets.size());
  }

  /// The same from the draws that follow the next `ahead`; none counts as made until skip().
  void fill_ahead(uint64_t ahead, uint64_t range, std::span<uint64_t> targets) const {
    std::array<base::Draw128, 64> bits;
    for (size_t done = 0; done < targets.size();) {
      const size_t count = std::min(bits.size(), targets.size() - done);
      base::philox_fill(seed_, kStream, made_ + ahead + done, {bits.data(), count});
      for (size_t i = 0; i < count; ++i) {
        targets[done + i] = base::scale_to(bits[i], range);
      }
      done += count;
    }
  }
  void skip(uint64_t count) { made_ += count; }

  /// Of the `count` draws from [0, part.all) that follow the next `ahead`, those that fall on
  /// `part`: their numbers, from `ahead` on and ascending, and how far into it they fall; each with
  /// room for `count`. Returns how many.
  size_t scan(uint64_t ahead, uint32_t count, const base::RangePart& part, uint32_t* numbers,
              uint64_t* offsets) const {
    constexpr uint32_t kAtOnce = 256;  // stay in the nearest cache
    std::array<uint32_t, kAtOnce + base::KeptDraws::kRoom> which;
    std::array<uint64_t, kAtOnce + base::KeptDraws::kRoom> hi;
    std::array<uint64_t, kAtOnce + base::KeptDraws::kRoom> lo;
    size_t kept = 0;
    for (uint32_t done = 0; done < count; done += std::min(kAtOnce, count - done)) {
      const uint64_t first = ahead + done;
      const size_t found =
          base::philox_scan(seed_, kStream, made_ + first, std::min(kAtOnce, count - done),
                            part.low, part.high, {which.data(), hi.data(), lo.data()});
      for (size_t i = 0; i < found; ++i) {
        const uint64_t offset = base::scale_to({hi[i], lo[i]}, part.all) - part.begin;
        numbers[kept] = static_cast<uint32_t>(first + which[i]);
        offsets[kept] = offset;
        kept += offset < part.size ? 1 : 0;
      }
    }
    return kept;
  }

 private:
  static constexpr uint64_t kStream = 0;
  uint64_t seed_;
  uint64_t made_ = 0;
};

/// Appends `count` independent draws from `items`, of one shard, to `out`: in chunks, or one by one
/// where every draw changes what the next may choose (max_times_sampled). Stops when nothing is
/// left.
template <class Items>
void draw_all(store::Index& index, Items& items, Draws& draws, uint64_t count, Selection& out) {
  const bool withdraws = index.options().max_times_sampled > 0;
  std::array<uint64_t, kDrawChunk> targets;
  for (uint64_t done = 0; done < count;) {
    const uint64_t total = items.total(index);
    if (total == 0) {
      return;
    }
    const uint64_t chunk = withdraws ? 1 : std::min(kDrawChunk, count - done);
    draws.fill(total, {targets.data(), chunk});
    items.add(index, {targets.data(), chunk}, total, out);
    if (withdraws) {
      index.mark_sampled(out.anchors.back(), out.unit);
    } else {
      index.count_sampled(chunk);
    }
    done += chunk;
  }
}

}  // namespace gear::select
