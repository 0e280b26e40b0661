#pragma once

#include <span>
#include <vector>

#include "base/numbers/permutation.h"
#include "base/threads/thread_pool.h"

namespace gear::select {

/// Where this rank's items are in a shuffled epoch over all ranks: the permutation, asked backwards
/// for each of the rank's own items, a stretch of the epoch at a time. So a batch costs what is the
/// rank's own of it, whatever the number of ranks.
///
///     epoch      0 .......... first ... first + items .......................... all
///     stretch         |--o----o--o-----o--------o---|          o: the rank's own
///
/// It holds the own items of one stretch, some kKeep of them, in cells that are sorted when a batch
/// comes to them: a pass over all of the rank's items finds those of the next stretch. Pure
/// functions of the arguments: whatever was asked before, the answer is the same.
class OwnPlaces {
 public:
  static constexpr uint64_t kKeep = 65536;  ///< 6 MiB at most

  /// keep: how many of the rank's items a stretch holds, about.
  explicit OwnPlaces(uint64_t keep = kKeep);

  /// Whether asking backwards costs at most half of what looking at every item of the batch does,
  /// for a rank that has `size` of `all` items.
  bool pays(uint64_t all, uint64_t size) const;

  /// Of the items [first, first + items) of an epoch in this order, those that lie in
  /// [begin, begin + size): numbers from `first` on, ascending, and how far into the range each
  /// lies. Replaces both.
  void find(const base::Permutation& order, uint64_t begin, uint64_t size, uint64_t first,
            uint64_t items, std::vector<uint32_t>& numbers, std::vector<uint64_t>& offsets);

 private:
  struct Place {
    uint64_t place;
    uint64_t offset;
  };
  struct Range {
    uint64_t begin = 0;
    uint64_t size = 0;

    friend bool operator==(const Range&, const Range&) = default;
  };

  uint64_t stretch(uint64_t all, uint64_t size) const;
  void look(const base::Permutation& order, Range own, uint64_t from, uint64_t to);

  uint64_t keep_;
  base::ThreadPool& pool_;
  base::Permutation order_{0, 0, 0};  // what cells_ are of, with own_
  Range own_;
  uint64_t from_ = 0;
  uint64_t to_ = 0;
  std::vector<std::vector<Place>> cells_;  // of [from_, to_), each of cell_ places
  std::vector<bool> sorted_;               // of each cell
  uint64_t cell_ = 1;
  std::vector<std::vector<Place>> parts_;
};

}  // namespace gear::select
