#include "base/numbers/philox.h"

#include <cstddef>

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

#if defined(__x86_64__)

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

[[gnu::target("avx2"), gnu::always_inline]] inline void store(const Words& words, Draw128* out) {
  constexpr int kUpperHalves = 0xAA;
  const __m256i lo =
      _mm256_blend_epi32(words.word0, _mm256_slli_epi64(words.word1, 32), kUpperHalves);
  const __m256i hi =
      _mm256_blend_epi32(words.word2, _mm256_slli_epi64(words.word3, 32), kUpperHalves);
  const __m256i even = _mm256_unpacklo_epi64(hi, lo);
  const __m256i odd = _mm256_unpackhi_epi64(hi, lo);
  auto* to = reinterpret_cast<__m256i*>(out);
  _mm256_storeu_si256(to, _mm256_permute2x128_si256(even, odd, 0x20));
  _mm256_storeu_si256(to + 1, _mm256_permute2x128_si256(even, odd, 0x31));
}

// Two independent groups of lanes hide the latency of the multiplication.
[[gnu::target("avx2")]] void fill_avx2(uint64_t seed, uint64_t stream, uint64_t first_counter,
                                       std::span<Draw128> out) {
  size_t done = 0;
  for (; done + kBlock <= out.size(); done += kBlock) {
    Words left = first_words(stream, first_counter + done);
    Words right = first_words(stream, first_counter + done + kLanes);
    auto key0 = static_cast<uint32_t>(seed);
    auto key1 = static_cast<uint32_t>(seed >> 32);
    for (int round = 0; round < kPhiloxRounds; ++round) {
      apply_round(left, _mm256_set1_epi64x(key0), _mm256_set1_epi64x(key1));
      apply_round(right, _mm256_set1_epi64x(key0), _mm256_set1_epi64x(key1));
      key0 += kPhiloxWeyl0;
      key1 += kPhiloxWeyl1;
    }
    store(left, out.data() + done);
    store(right, out.data() + done + kLanes);
  }
  fill_scalar(seed, stream, first_counter + done, out.subspan(done));
}

#endif

using Fill = void (*)(uint64_t, uint64_t, uint64_t, std::span<Draw128>);

// Chosen by hand: target_clones needs an ifunc, whose resolver runs before a sanitizer does.
Fill choose_fill() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2")) {
    return fill_avx2;
  }
#endif
  return fill_scalar;
}

}  // namespace

void philox_fill(uint64_t seed, uint64_t stream, uint64_t first_counter, std::span<Draw128> out) {
  static const Fill fill = choose_fill();
  fill(seed, stream, first_counter, out);
}

}  // namespace gear::base
