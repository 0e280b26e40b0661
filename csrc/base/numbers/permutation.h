#pragma once

#include <cstdint>
#include <span>

#include "base/numbers/philox.h"

namespace gear::base {

/// A keyed bijection of [0, size): position -> element, without an array of `size` entries. This is
/// how an epoch without replacement is shuffled, on CPU and GPU alike, and resumed from a counter.
///
/// A balanced Feistel network of kRounds rounds over the smallest even number of bits that holds
/// `size`, with cycle walking: an output >= size is fed back until it falls inside, at most 4
/// evaluations on average (Black, Rogaway: Ciphers with Arbitrary Finite Domains, CT-RSA 2002).
/// Statistical quality only; it keeps nothing secret. So few rounds over so few bits are not even:
/// below kSmall elements the order is a shuffle by transpositions instead (Fisher, Yates;
/// Durstenfeld, CACM 7, 1964), followed for the one element that is asked for.
///
///     Permutation order(num_anchors, draw.hi, draw.lo);   // keys from philox(seed, stream, epoch)
///     anchor = order(position);                           // position in [0, num_anchors)
class Permutation {
 public:
  /// A few operations, no memory. Sizes up to 2^64 - 1; a permutation of size 0 is never evaluated.
  GEAR_HD Permutation(uint64_t size, uint64_t key0, uint64_t key1)
      : size_(size), key0_(key0), key1_(key1) {
    half_bits_ = 1;
    while (half_bits_ < 32 && (uint64_t{1} << (2 * half_bits_)) < size) {
      ++half_bits_;
    }
    half_mask_ = (uint64_t{1} << half_bits_) - 1;
  }

  GEAR_HD uint64_t size() const { return size_; }

  friend bool operator==(const Permutation&, const Permutation&) = default;

  /// The element at `index`; index < size() is the caller's duty. About 20 ns, and up to
  /// 100 ns below kSmall and at sizes just above a power of four, where most evaluations are
  /// repeated.
  GEAR_HD uint64_t operator()(uint64_t index) const {
    if (size_ < kSmall) {
      return shuffle(index);
    }
    do {
      index = encrypt(index);
    } while (index >= size_);
    return index;
  }

  /// elements[i] = (*this)(first + i), many at a time: with AVX-512 8 ns each, up to 34 at sizes
  /// just above a power of four (20 and 170 one by one, on a Xeon of 2.3 GHz).
  void elements_from(uint64_t first, std::span<uint64_t> elements) const;
  /// The way back, likewise: (*this)(indices[i]) == first + i.
  void indices_from(uint64_t first, std::span<uint64_t> indices) const;

 private:
  friend struct PermutationBlocks;
  static constexpr int kRounds = 8;
  static constexpr uint64_t kSmall = 64;

  /// Swaps place i with one of the places up to it, each as likely, for every i.
  GEAR_HD uint64_t shuffle(uint64_t place) const {
    for (uint64_t i = size_; i-- > 1;) {
      place = swapped(place, i);
    }
    return place;
  }
  GEAR_HD uint64_t unshuffle(uint64_t place) const {
    for (uint64_t i = 1; i < size_; ++i) {
      place = swapped(place, i);
    }
    return place;
  }
  GEAR_HD uint64_t swapped(uint64_t place, uint64_t i) const {
    const uint64_t other = (mix(i, 0) >> 32) * (i + 1) >> 32;
    return place == i ? other : place == other ? i : place;
  }

  GEAR_HD uint64_t encrypt(uint64_t value) const {
    uint64_t left = value >> half_bits_;
    uint64_t right = value & half_mask_;
    for (int round = 0; round < kRounds; ++round) {
      const uint64_t mixed = left ^ (mix(right, static_cast<uint64_t>(round)) & half_mask_);
      left = right;
      right = mixed;
    }
    return (left << half_bits_) | right;
  }

  /// The rounds backwards.
  GEAR_HD uint64_t decrypt(uint64_t value) const {
    uint64_t left = value >> half_bits_;
    uint64_t right = value & half_mask_;
    for (int round = kRounds; round-- > 0;) {
      const uint64_t mixed = right ^ (mix(left, static_cast<uint64_t>(round)) & half_mask_);
      right = left;
      left = mixed;
    }
    return (left << half_bits_) | right;
  }

  /// Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators (OOPSLA 2014), the
  /// finaliser with Stafford's constants; each key enters between full avalanches.
  GEAR_HD uint64_t mix(uint64_t value, uint64_t round) const {
    uint64_t z = (value + key0_) + (round + 1) * 0x9E3779B97F4A7C15;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z ^= key1_;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return z ^ (z >> 31);
  }

  uint64_t size_;
  uint64_t key0_;
  uint64_t key1_;
  int half_bits_;
  uint64_t half_mask_;
};

}  // namespace gear::base
