#include "base/numbers/philox.h"

#include <array>
#include <cstddef>

#include "base/numbers/simd.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace gear::base {
namespace {

void fill_scalar(uint64_t seed, uint64_t stream, uint64_t first_counter, std::span<Draw128> out) {
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = philox(seed, stream, first_counter + i);
  }
}

// Appends those of [from, count) to the `found` that there are.
size_t scan_rest(uint64_t seed, uint64_t stream, uint64_t first_counter, uint32_t from,
                 uint32_t count, uint64_t low, uint64_t high, const KeptDraws& kept, size_t found) {
  for (uint32_t i = from; i < count; ++i) {
    const Draw128 draw = philox(seed, stream, first_counter + i);
    kept.numbers[found] = i;
    kept.hi[found] = draw.hi;
    kept.lo[found] = draw.lo;
    found += draw.hi - low <= high - low ? 1 : 0;
  }
  return found;
}

size_t scan_scalar(uint64_t seed, uint64_t stream, uint64_t first_counter, uint32_t count,
                   uint64_t low, uint64_t high, const KeptDraws& kept) {
  return scan_rest(seed, stream, first_counter, 0, count, low, high, kept, 0);
}

#if defined(__x86_64__)

// The keys of all rounds, in the lower halves.
struct Keys {
  std::array<uint64_t, kPhiloxRounds> key0;
  std::array<uint64_t, kPhiloxRounds> key1;

  explicit Keys(uint64_t seed) {
    auto next0 = static_cast<uint32_t>(seed);
    auto next1 = static_cast<uint32_t>(seed >> 32);
    for (size_t round = 0; round < kPhiloxRounds; ++round) {
      key0[round] = next0;
      key1[round] = next1;
      next0 += kPhiloxWeyl0;
      next1 += kPhiloxWeyl1;
    }
  }
};

// Structure of arrays: one 64-bit lane a draw, whose lower half holds a word of it. The upper half
// holds rubbish, which the multiplication does not read.
struct Words {
  __m256i word0;
  __m256i word1;
  __m256i word2;
  __m256i word3;
};

constexpr size_t kLanes = 4;
constexpr size_t kBlock = 2 * kLanes;

[[gnu::target("avx2"), gnu::always_inline]] inline Words first_words(uint64_t stream,
                                                                     uint64_t counter) {
  const __m256i counters = _mm256_add_epi64(_mm256_set1_epi64x(static_cast<int64_t>(counter)),
                                            _mm256_set_epi64x(3, 2, 1, 0));
  const __m256i streams = _mm256_set1_epi64x(static_cast<int64_t>(stream));
  return {counters, _mm256_srli_epi64(counters, 32), streams, _mm256_srli_epi64(streams, 32)};
}

[[gnu::target("avx2"), gnu::always_inline]] inline void apply_round(Words& words, __m256i key0,
                                                                    __m256i key1) {
  const __m256i product0 = _mm256_mul_epu32(words.word0, _mm256_set1_epi64x(kPhiloxMultiplier0));
  const __m256i product1 = _mm256_mul_epu32(words.word2, _mm256_set1_epi64x(kPhiloxMultiplier1));
  words.word0 =
      _mm256_xor_si256(_mm256_srli_epi64(product1, 32), _mm256_xor_si256(words.word1, key0));
  words.word1 = product1;
  words.word2 =
      _mm256_xor_si256(_mm256_srli_epi64(product0, 32), _mm256_xor_si256(words.word3, key1));
  words.word3 = product0;
}

// One 64-bit word from the lower halves of two.
[[gnu::target("avx2"), gnu::always_inline]] inline __m256i joined(__m256i lower, __m256i upper) {
  constexpr int kUpperHalves = 0xAA;
  return _mm256_blend_epi32(lower, _mm256_slli_epi64(upper, 32), kUpperHalves);
}

[[gnu::target("avx2"), gnu::always_inline]] inline void store(const Words& words, Draw128* out) {
  const __m256i lo = joined(words.word0, words.word1);
  const __m256i hi = joined(words.word2, words.word3);
  const __m256i even = _mm256_unpacklo_epi64(hi, lo);
  const __m256i odd = _mm256_unpackhi_epi64(hi, lo);
  auto* to = reinterpret_cast<__m256i*>(out);
  _mm256_storeu_si256(to, _mm256_permute2x128_si256(even, odd, 0x20));
  _mm256_storeu_si256(to + 1, _mm256_permute2x128_si256(even, odd, 0x31));
}

// Two independent groups of lanes hide the latency of the multiplication.
struct TwoWords {
  Words left;
  Words right;
};

[[gnu::target("avx2"), gnu::always_inline]] inline TwoWords two_words(const Keys& keys,
                                                                      uint64_t stream,
                                                                      uint64_t counter) {
  TwoWords both{first_words(stream, counter), first_words(stream, counter + kLanes)};
#pragma GCC unroll 10
  for (size_t round = 0; round < kPhiloxRounds; ++round) {
    const __m256i key0 = _mm256_set1_epi64x(static_cast<int64_t>(keys.key0[round]));
    const __m256i key1 = _mm256_set1_epi64x(static_cast<int64_t>(keys.key1[round]));
    apply_round(both.left, key0, key1);
    apply_round(both.right, key0, key1);
  }
  return both;
}

[[gnu::target("avx2")]] void fill_avx2(uint64_t seed, uint64_t stream, uint64_t first_counter,
                                       std::span<Draw128> out) {
  const Keys keys(seed);
  size_t done = 0;
  for (; done + kBlock <= out.size(); done += kBlock) {
    const TwoWords both = two_words(keys, stream, first_counter + done);
    store(both.left, out.data() + done);
    store(both.right, out.data() + done + kLanes);
  }
  fill_scalar(seed, stream, first_counter + done, out.subspan(done));
}

// By which lanes are kept: where they go, as 32-bit halves and as lanes.
struct Packing {
  std::array<std::array<uint32_t, 2 * kLanes>, 1 << kLanes> halves{};
  std::array<std::array<uint32_t, kLanes>, 1 << kLanes> lanes{};

  constexpr Packing() {
    for (uint32_t mask = 0; mask < halves.size(); ++mask) {
      size_t next = 0;
      for (uint32_t lane = 0; lane < kLanes; ++lane) {
        if ((mask >> lane & 1) != 0) {
          halves[mask][2 * next] = 2 * lane;
          halves[mask][2 * next + 1] = 2 * lane + 1;
          lanes[mask][next++] = lane;
        }
      }
    }
  }
};
constexpr Packing kPacking;

[[gnu::target("avx2"), gnu::always_inline]] inline __m256i load(const void* from) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(from));
}

[[gnu::target("avx2"), gnu::always_inline]] inline size_t keep(const Words& words, uint32_t number,
                                                               uint64_t low, uint64_t high,
                                                               const KeptDraws& kept,
                                                               size_t found) {
  constexpr uint64_t kSign = uint64_t{1} << 63;  // compared as signed numbers
  const __m256i hi = joined(words.word2, words.word3);
  const __m256i above = _mm256_sub_epi64(hi, _mm256_set1_epi64x(static_cast<int64_t>(low + kSign)));
  const __m256i out =
      _mm256_cmpgt_epi64(above, _mm256_set1_epi64x(static_cast<int64_t>((high - low) ^ kSign)));
  const auto mask = static_cast<uint32_t>(_mm256_movemask_pd(_mm256_castsi256_pd(out))) ^ 0xF;
  if (mask == 0) {
    return found;
  }
  const __m256i order = load(kPacking.halves[mask].data());
  const __m256i lo = joined(words.word0, words.word1);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(kept.hi + found),
                      _mm256_permutevar8x32_epi32(hi, order));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(kept.lo + found),
                      _mm256_permutevar8x32_epi32(lo, order));
  const __m128i lanes =
      _mm_loadu_si128(reinterpret_cast<const __m128i*>(kPacking.lanes[mask].data()));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(kept.numbers + found),
                   _mm_add_epi32(lanes, _mm_set1_epi32(static_cast<int32_t>(number))));
  return found + static_cast<size_t>(__builtin_popcount(mask));
}

[[gnu::target("avx2")]] size_t scan_avx2(uint64_t seed, uint64_t stream, uint64_t first_counter,
                                         uint32_t count, uint64_t low, uint64_t high,
                                         const KeptDraws& kept) {
  const Keys keys(seed);
  size_t found = 0;
  uint32_t done = 0;
  for (; count - done >= kBlock; done += kBlock) {
    const TwoWords both = two_words(keys, stream, first_counter + done);
    found = keep(both.left, done, low, high, kept, found);
    found = keep(both.right, done + kLanes, low, high, kept, found);
  }
  return scan_rest(seed, stream, first_counter, done, count, low, high, kept, found);
}

// The same with eight lanes, four groups and an instruction that packs. Masked by all lanes, since
// GCC 12 takes the unmasked intrinsics for reads of what was not initialised.
constexpr __mmask8 kAllLanes = 0xFF;
constexpr size_t kWideLanes = 8;
constexpr size_t kWideGroups = 4;

struct WideWords {
  __m512i word0;
  __m512i word1;
  __m512i word2;
  __m512i word3;
};

[[gnu::target("avx512f,avx512vl"), gnu::always_inline]] inline void apply_round(WideWords& words,
                                                                                __m512i key0,
                                                                                __m512i key1) {
  constexpr int kXorOfThree = 0x96;
  const __m512i product0 =
      _mm512_maskz_mul_epu32(kAllLanes, words.word0, _mm512_set1_epi64(kPhiloxMultiplier0));
  const __m512i product1 =
      _mm512_maskz_mul_epu32(kAllLanes, words.word2, _mm512_set1_epi64(kPhiloxMultiplier1));
  words.word0 = _mm512_ternarylogic_epi64(_mm512_maskz_srli_epi64(kAllLanes, product1, 32),
                                          words.word1, key0, kXorOfThree);
  words.word1 = product1;
  words.word2 = _mm512_ternarylogic_epi64(_mm512_maskz_srli_epi64(kAllLanes, product0, 32),
                                          words.word3, key1, kXorOfThree);
  words.word3 = product0;
}

[[gnu::target("avx512f,avx512vl"), gnu::always_inline]] inline __m512i joined(__m512i lower,
                                                                              __m512i upper) {
  constexpr __mmask16 kUpperHalves = 0xAAAA;
  return _mm512_mask_blend_epi32(kUpperHalves, lower,
                                 _mm512_maskz_slli_epi64(kAllLanes, upper, 32));
}

[[gnu::target("avx512f,avx512vl")]] size_t scan_avx512(uint64_t seed, uint64_t stream,
                                                       uint64_t first_counter, uint32_t count,
                                                       uint64_t low, uint64_t high,
                                                       const KeptDraws& kept) {
  constexpr uint32_t kWideBlock = kWideGroups * kWideLanes;
  const Keys keys(seed);
  const __m512i lanes = _mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0);
  const __m512i streams = _mm512_set1_epi64(static_cast<int64_t>(stream));
  const __m512i lowest = _mm512_set1_epi64(static_cast<int64_t>(low));
  const __m512i width = _mm512_set1_epi64(static_cast<int64_t>(high - low));
  size_t found = 0;
  uint32_t done = 0;
  for (; count - done >= kWideBlock; done += kWideBlock) {
    std::array<WideWords, kWideGroups> groups;
#pragma GCC unroll 4
    for (size_t g = 0; g < kWideGroups; ++g) {
      const uint64_t counter = first_counter + done + g * kWideLanes;
      const __m512i counters =
          _mm512_add_epi64(_mm512_set1_epi64(static_cast<int64_t>(counter)), lanes);
      groups[g] = {counters, _mm512_maskz_srli_epi64(kAllLanes, counters, 32), streams,
                   _mm512_maskz_srli_epi64(kAllLanes, streams, 32)};
    }
#pragma GCC unroll 10
    for (size_t round = 0; round < kPhiloxRounds; ++round) {
      const __m512i key0 = _mm512_set1_epi64(static_cast<int64_t>(keys.key0[round]));
      const __m512i key1 = _mm512_set1_epi64(static_cast<int64_t>(keys.key1[round]));
#pragma GCC unroll 4
      for (size_t g = 0; g < kWideGroups; ++g) {
        apply_round(groups[g], key0, key1);
      }
    }
#pragma GCC unroll 4
    for (size_t g = 0; g < kWideGroups; ++g) {
      const WideWords& words = groups[g];
      const __m512i hi = joined(words.word2, words.word3);
      const __mmask8 mask = _mm512_cmple_epu64_mask(_mm512_sub_epi64(hi, lowest), width);
      if (mask == 0) {
        continue;
      }
      const __m512i lo = joined(words.word0, words.word1);
      const __m256i numbers =
          _mm256_add_epi32(_mm256_set1_epi32(static_cast<int32_t>(done + g * kWideLanes)),
                           _mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0));
      _mm512_storeu_si512(kept.hi + found, _mm512_maskz_compress_epi64(mask, hi));
      _mm512_storeu_si512(kept.lo + found, _mm512_maskz_compress_epi64(mask, lo));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(kept.numbers + found),
                          _mm256_maskz_compress_epi32(mask, numbers));
      found += static_cast<size_t>(__builtin_popcount(mask));
    }
  }
  return scan_rest(seed, stream, first_counter, done, count, low, high, kept, found);
}

#endif

}  // namespace

size_t philox_scan(uint64_t seed, uint64_t stream, uint64_t first_counter, uint32_t count,
                   uint64_t low, uint64_t high, const KeptDraws& kept) {
  static const auto scan = pick(scan_scalar, GEAR_X86(scan_avx2), GEAR_X86(scan_avx512));
  return scan(seed, stream, first_counter, count, low, high, kept);
}

void philox_fill(uint64_t seed, uint64_t stream, uint64_t first_counter, std::span<Draw128> out) {
  static const auto fill = pick(fill_scalar, GEAR_X86(fill_avx2));
  fill(seed, stream, first_counter, out);
}

}  // namespace gear::base
