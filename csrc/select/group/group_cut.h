#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace gear::select {

/// How many of every rank's sorted keys are among the first ones of all ranks' together: a search
/// of a few rounds, in which every rank tells all the others kNumbers numbers. Equal keys go by
/// rank, and within a rank by place.
///
/// A rank's window holds those of its keys of which it is open whether they are among the first;
/// what lies before it is, what lies behind is not. It is divided into kSamples chunks of about the
/// same size, or of one key, and the last key of each is told:
///
///     keys      . . . . | . . . x . . . x . . . x | . . .
///                     begin                      end
///
/// A sample says that its chunk's keys are no larger: how many keys of all are up to it, at least;
/// and the chunks that follow it in the other windows say how many at most. So the windows shrink
/// by a factor of kSamples / 2 or so a round, and where all chunks are of one key, the cut is
/// known.
class GroupCut {
 public:
  static constexpr size_t kSamples = 64;
  static constexpr size_t kNumbers = 2 + kSamples;
  /// What a rank tells: begin, end, and the samples; behind those of a small window anything.
  using Window = std::array<uint64_t, kNumbers>;

  static Window window_of(std::span<const uint64_t> keys, uint64_t begin, uint64_t end);

  /// `keys`: this rank's, ascending. `reversed`: the last rank goes first among equal ones.
  GroupCut(std::span<const uint64_t> keys, uint32_t rank, uint32_t size, bool reversed);

  /// The windows of all ranks, one after the other: to be filled in before each narrow().
  std::span<uint64_t> numbers() { return numbers_; }
  /// This rank's, after narrow().
  std::span<const uint64_t> own() const { return own_; }

  /// Whether the first `items` are found, or all there are: `counts` is how many each rank has of
  /// them. The same on all ranks.
  bool narrow(uint64_t items, std::vector<uint64_t>& counts);

  /// `keys`: those of all ranks among the first, rank after rank, counts[r] of rank r. Which ones,
  /// in the order of all, this rank's are.
  void number(std::span<const uint64_t> keys, std::span<const uint64_t> counts,
              std::vector<uint32_t>& own) const;

 private:
  /// The last key of a chunk.
  struct Sample {
    uint64_t key;
    uint32_t turn;  ///< of its rank among equal keys
    uint32_t rank;
    uint64_t place;  ///< among its rank's keys
    uint64_t chunk;  ///< keys of its chunk
    uint64_t next;   ///< keys of the one behind it, less the last
  };

  uint64_t at(uint32_t rank, size_t i) const { return numbers_[rank * kNumbers + i]; }
  uint32_t turn(uint32_t rank) const { return reversed_ ? size_ - 1 - rank : rank; }
  uint64_t own_up_to(const Sample& sample) const;

  std::span<const uint64_t> keys_;
  uint32_t rank_;
  uint32_t size_;
  bool reversed_;
  std::vector<uint64_t> numbers_;
  Window own_{};
  std::vector<Sample> samples_;
};

}  // namespace gear::select
