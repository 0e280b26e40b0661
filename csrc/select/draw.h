#pragma once

#include <algorithm>
#include <array>
#include <span>

#include "base/philox.h"
#include "select/sampler.h"

namespace gear::select {

// Counter-based draws of the policies that leave it to chance.
class Draws {
 public:
  explicit Draws(uint64_t seed) : seed_(seed) {}

  uint64_t made() const { return made_; }
  void restore(uint64_t made) { made_ = made; }

  // targets[i] uniform in [0, range), from the next draws.
  void fill(uint64_t range, std::span<uint64_t> targets) {
    std::array<base::Draw128, 64> bits;
    for (size_t done = 0; done < targets.size();) {
      const size_t count = std::min(bits.size(), targets.size() - done);
      base::philox_fill(seed_, kStream, made_, {bits.data(), count});
      for (size_t i = 0; i < count; ++i) targets[done + i] = base::scale_to(bits[i], range);
      made_ += count;
      done += count;
    }
  }

 private:
  static constexpr uint64_t kStream = 0;
  uint64_t seed_;
  uint64_t made_ = 0;
};

// Makes `count` draws with `draw(n)`, which appends n independent ones to `out`: in chunks, or one
// by one where every draw changes what the next may choose (max_times_sampled).
template <class Draw>
void draw_all(store::Index& index, uint64_t count, Selection& out, Draw draw) {
  const bool withdraws = index.options().max_times_sampled > 0;
  for (uint64_t done = 0; done < count;) {
    const uint64_t chunk = withdraws ? 1 : std::min(kDrawChunk, count - done);
    const size_t before = out.size();
    draw(chunk);
    if (out.size() == before) return;
    for (size_t i = before; i < out.size(); ++i) index.mark_sampled(out.anchors[i], out.unit);
    done += out.size() - before;
  }
}

}  // namespace gear::select
