#include "store/drawable/sum_tree.h"

#include <algorithm>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/errors.h"
#include "base/numbers/simd.h"
#include "base/threads/prefetch.h"

namespace gear::store {
namespace {

constexpr uint64_t kGroup = 64;    // targets that descend, or leaves that are set, together
constexpr size_t kColdLevels = 2;  // that do not stay in the cache by themselves

// kFrom + 16 - k masks the sums that child k is part of: an addition without a branch.
constexpr int64_t kFrom[2 * SumTree::kFanout] = {
    0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,   // before the child
    -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1,  // from it on
};

// The two cache lines of a group.
[[gnu::always_inline]] inline void prefetch_group(const int64_t* sums) {
  base::prefetch(sums);
  base::prefetch(sums + SumTree::kFanout / 2);
}

// Targets on their way down: `place` is the node each has reached, `left` what is left of it.
struct Descent {
  int64_t left[kGroup];
  uint64_t place[kGroup];
};

// Takes every target from its node to one of the 16 children; `nodes` is the level's first.
using Step = void (*)(const int64_t* nodes, size_t count, Descent& descent);

inline void enter_child(const int64_t* sums, uint64_t passed, int64_t& left, uint64_t& place) {
  const uint64_t any = passed > 0 ? 1 : 0;  // no branch: one in 16 would be mispredicted
  left -= sums[passed - any] & -static_cast<int64_t>(any);
  place = place * SumTree::kFanout + passed;
}

void step_portable(const int64_t* nodes, size_t count, Descent& descent) {
  for (size_t i = 0; i < count; ++i) {
    const int64_t* sums = nodes + descent.place[i] * SumTree::kFanout;
    uint64_t passed = 0;
    for (uint64_t k = 0; k < SumTree::kFanout; ++k) {
      // left >= sum, by the sign of their difference, as both are 0 or more: GCC 12 counts a
      // comparison wrong here on AArch64.
      passed += ~static_cast<uint64_t>(descent.left[i] - sums[k]) >> 63;
    }
    enter_child(sums, passed, descent.left[i], descent.place[i]);
  }
}

#if defined(__x86_64__)
[[gnu::target("avx2,popcnt")]] void step_avx2(const int64_t* nodes, size_t count,
                                              Descent& descent) {
  for (size_t i = 0; i < count; ++i) {
    const int64_t* sums = nodes + descent.place[i] * SumTree::kFanout;
    const __m256i target = _mm256_set1_epi64x(descent.left[i]);
    unsigned beyond = 0;  // one bit for every sum above the target
    for (unsigned k = 0; k < SumTree::kFanout; k += 4) {
      const __m256i four = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(sums + k));
      const __m256d above = _mm256_castsi256_pd(_mm256_cmpgt_epi64(four, target));
      beyond |= static_cast<unsigned>(_mm256_movemask_pd(above)) << k;
    }
    const auto passed = SumTree::kFanout - static_cast<unsigned>(__builtin_popcount(beyond));
    enter_child(sums, passed, descent.left[i], descent.place[i]);
  }
}

[[gnu::target("avx512f,popcnt")]] void step_avx512(const int64_t* nodes, size_t count,
                                                   Descent& descent) {
  for (size_t i = 0; i < count; ++i) {
    const int64_t* sums = nodes + descent.place[i] * SumTree::kFanout;
    const __m512i target = _mm512_set1_epi64(descent.left[i]);
    const unsigned low = _mm512_cmple_epi64_mask(_mm512_loadu_si512(sums), target);
    const unsigned high = _mm512_cmple_epi64_mask(_mm512_loadu_si512(sums + 8), target);
    const auto passed = static_cast<unsigned>(__builtin_popcount(high << 8 | low));
    enter_child(sums, passed, descent.left[i], descent.place[i]);
  }
}
#endif

// Adds to the weight of one child of every level, from the first of `levels` up; `node` counts at
// that level.
using Add = void (*)(int64_t* nodes, std::span<const uint64_t> levels, uint64_t node,
                     int64_t delta);

void add_portable(int64_t* nodes, std::span<const uint64_t> levels, uint64_t node, int64_t delta) {
  for (const uint64_t begin : levels) {
    int64_t* sums = nodes + begin + node / SumTree::kFanout * SumTree::kFanout;
    const int64_t* from = kFrom + SumTree::kFanout - node % SumTree::kFanout;
    for (uint64_t k = 0; k < SumTree::kFanout; ++k) {
      sums[k] += delta & from[k];
    }
    node /= SumTree::kFanout;
  }
}

#if defined(__x86_64__)
[[gnu::target("avx2")]] void add_avx2(int64_t* nodes, std::span<const uint64_t> levels,
                                      uint64_t node, int64_t delta) {
  const __m256i added = _mm256_set1_epi64x(delta);
  for (const uint64_t begin : levels) {
    int64_t* sums = nodes + begin + node / SumTree::kFanout * SumTree::kFanout;
    const int64_t* from = kFrom + SumTree::kFanout - node % SumTree::kFanout;
    for (unsigned k = 0; k < SumTree::kFanout; k += 4) {
      auto* four = reinterpret_cast<__m256i*>(sums + k);
      const __m256i mask = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + k));
      _mm256_storeu_si256(
          four, _mm256_add_epi64(_mm256_loadu_si256(four), _mm256_and_si256(added, mask)));
    }
    node /= SumTree::kFanout;
  }
}

[[gnu::target("avx512f")]] void add_avx512(int64_t* nodes, std::span<const uint64_t> levels,
                                           uint64_t node, int64_t delta) {
  const __m512i added = _mm512_set1_epi64(delta);
  for (const uint64_t begin : levels) {
    int64_t* sums = nodes + begin + node / SumTree::kFanout * SumTree::kFanout;
    const unsigned from = 0xFFFFU << node % SumTree::kFanout;
    const __m512i low = _mm512_loadu_si512(sums);
    const __m512i high = _mm512_loadu_si512(sums + 8);
    _mm512_storeu_si512(sums, _mm512_mask_add_epi64(low, static_cast<__mmask8>(from), low, added));
    _mm512_storeu_si512(sums + 8,
                        _mm512_mask_add_epi64(high, static_cast<__mmask8>(from >> 8), high, added));
    node /= SumTree::kFanout;
  }
}
#endif

}  // namespace

SumTree::SumTree(uint64_t num_leaves) : num_leaves_(num_leaves) {
  GEAR_CHECK(num_leaves > 0);
  uint64_t begin = 0;
  for (uint64_t count = num_leaves;; count = (count + kFanout - 1) / kFanout) {
    level_begin_.push_back(begin);
    begin += (count + kFanout - 1) / kFanout * kFanout;
    if (count <= kFanout) {
      break;
    }
  }
  nodes_.resize(begin, 0);
}

void SumTree::add(size_t level, uint64_t node, int64_t delta) {
  static const Add form = base::pick(add_portable, GEAR_X86(add_avx2), GEAR_X86(add_avx512));
  form(nodes_.data(), std::span(level_begin_).subspan(level), node, delta);
}

void SumTree::set(uint64_t leaf, uint64_t weight) {
  const auto delta = static_cast<int64_t>(weight - (*this)[leaf]);
  if (delta != 0) {
    add(0, leaf, delta);
  }
}

void SumTree::prefetch(uint64_t leaf) const {
  prefetch_group(nodes_.data() + leaf / kFanout * kFanout);
  if (level_begin_.size() > 1) {
    const uint64_t parent = leaf / kFanout;
    prefetch_group(nodes_.data() + level_begin_[1] + parent / kFanout * kFanout);
  }
}

void SumTree::set_each(std::span<const uint64_t> leaves, std::span<const uint64_t> weights) {
  GEAR_CHECK(leaves.size() == weights.size());
  for (size_t begin = 0; begin < leaves.size(); begin += kGroup) {
    const size_t stop = std::min<size_t>(leaves.size(), begin + kGroup);
    for (size_t level = 0, width = kFanout; level < std::min(kColdLevels, level_begin_.size());
         ++level, width *= kFanout) {
      const int64_t* nodes = nodes_.data() + level_begin_[level];
      for (size_t i = begin; i < stop; ++i) {
        prefetch_group(nodes + leaves[i] / width * kFanout);
      }
    }
    for (size_t i = begin; i < stop; ++i) {
      set(leaves[i], weights[i]);
    }
  }
}

void SumTree::set_run(uint64_t first, std::span<const uint64_t> weights) {
  uint64_t done = 0;
  while (done < weights.size()) {
    const uint64_t group = (first + done) / kFanout;
    const uint64_t stop = std::min<uint64_t>(weights.size(), (group + 1) * kFanout - first);
    int64_t* sums = nodes_.data() + group * kFanout;
    uint64_t k = (first + done) % kFanout;
    int64_t running = k == 0 ? 0 : sums[k - 1];
    int64_t delta = 0;
    for (; done < stop; ++done, ++k) {
      running += static_cast<int64_t>(weights[done]);
      delta = running - sums[k];
      sums[k] = running;
    }
    for (; k < kFanout; ++k) {
      sums[k] += delta;
    }
    if (delta != 0) {
      add(1, group, delta);
    }
  }
}

void SumTree::find(std::span<const uint64_t> targets, std::span<Hit> hits) const {
  GEAR_CHECK(targets.size() == hits.size());
  static const Step step = base::pick(step_portable, GEAR_X86(step_avx2), GEAR_X86(step_avx512));
  for (size_t begin = 0; begin < targets.size(); begin += kGroup) {
    const size_t count = std::min<size_t>(kGroup, targets.size() - begin);
    Descent descent{};
    for (size_t i = 0; i < count; ++i) {
      descent.left[i] = static_cast<int64_t>(targets[begin + i]);
    }
    for (size_t level = level_begin_.size(); level-- > 0;) {
      step(nodes_.data() + level_begin_[level], count, descent);
      if (level == 0) {
        break;
      }
      const int64_t* below = nodes_.data() + level_begin_[level - 1];
      for (size_t i = 0; i < count; ++i) {
        prefetch_group(below + descent.place[i] * kFanout);
      }
    }
    for (size_t i = 0; i < count; ++i) {
      hits[begin + i] = {descent.place[i], static_cast<uint64_t>(descent.left[i])};
    }
  }
}

}  // namespace gear::store
