#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/threads/thread_pool.h"

namespace gear::group {

enum class Locality : uint8_t {
  kFirst,  ///< ranks keep what was drawn from their own shards up to their share
  kOff,    ///< draw i goes to rank i / batch size
};

/// "first", "off". Throws InvalidArgument.
Locality parse_locality(std::string_view text);

/// Numbers the entries of a long list of ranks: each is the n-th of its rank. Long lists are
/// numbered in parts, which the pool shares; a row of counters says for each part how often the
/// ranks occur before it.
///
///   list   2 0 2 | 0 2 1 | ...
///   row    0 0 0 | 1 0 2 | ...     of ranks 0, 1, 2
///   n      0 0 1 | 1 2 0 | ...
class Numbering {
 public:
  /// Entries that are worth a part.
  static constexpr uint64_t kPartEntries = 8192;

  explicit Numbering(size_t num_ranks, uint64_t part_entries = kPartEntries)
      : num_ranks_(num_ranks),
        stride_(std::max(num_ranks, kApart)),
        part_entries_(part_entries),
        pool_(base::ThreadPool::shared()) {}

  /// Parts of a list of so many entries.
  size_t num_parts(uint64_t entries) const {
    return pool_.size() == 1 ? 1 : std::clamp<uint64_t>(entries / part_entries_, 1, kMostParts);
  }

  /// By rank, how often rank_of(0), rank_of(1), ... are it. From any thread.
  template <class RankOf>
  std::span<const uint32_t> count(uint64_t entries, const RankOf& rank_of) {
    const size_t parts = num_parts(entries);
    count_parts(entries, rank_of, parts);
    return {row(parts), num_ranks_};
  }

  /// visit(part, i, n) for every entry: those of a part in order, the parts from any thread.
  /// Returns what count() does.
  template <class RankOf, class Visit>
  std::span<const uint32_t> number(uint64_t entries, const RankOf& rank_of, const Visit& visit) {
    const size_t parts = num_parts(entries);
    count_parts(entries, rank_of, parts - 1);
    each_part(entries, parts, [&](size_t part, uint64_t begin, uint64_t end) {
      uint32_t* const before = row(part);
      for (uint64_t i = begin; i < end; ++i) {
        visit(part, i, before[rank_of(i)]++);
      }
    });
    return {row(parts - 1), num_ranks_};
  }

 private:
  static constexpr uint64_t kMostParts = 256;
  static constexpr size_t kApart = 32;  ///< counters of two parts never share a cache line

  uint32_t* row(size_t part) { return counters_.data() + part * stride_; }

  /// Fills in the rows up to that behind the first `counted` parts.
  template <class RankOf>
  void count_parts(uint64_t entries, const RankOf& rank_of, size_t counted) {
    counters_.assign((counted + 1) * stride_, 0);
    each_part(entries, counted, [&](size_t part, uint64_t begin, uint64_t end) {
      uint32_t* const own = row(part + 1);
      for (uint64_t i = begin; i < end; ++i) {
        ++own[rank_of(i)];
      }
    });
    for (size_t i = stride_; i < counters_.size(); ++i) {
      counters_[i] += counters_[i - stride_];
    }
  }

  template <class Work>
  void each_part(uint64_t entries, size_t parts, const Work& work) {
    const uint64_t all = num_parts(entries);
    pool_.parallel_for(
        parts, [&](size_t part) { work(part, entries * part / all, entries * (part + 1) / all); });
  }

  size_t num_ranks_;
  size_t stride_;
  uint64_t part_entries_;
  base::ThreadPool& pool_;
  std::vector<uint32_t> counters_;  ///< row after row
};

/// Which rank receives which draw of a global batch. Every rank computes the same from the same
/// draws: nothing is exchanged. A batch is exchangeable: who consumes which draw does not change
/// the mean over all of them.
class Assignment {
 public:
  /// nodes[r]: number of rank r's node, from 0. `part_draws`: see Numbering.
  Assignment(std::vector<uint32_t> nodes, Locality locality,
             uint64_t part_draws = Numbering::kPartEntries);

  /// `owners`: by draw. Rank r receives draws / ranks of them, the first draws % ranks one more:
  /// every rank exactly the batch size, but at the end of an epoch. kFirst: what a rank draws
  /// beyond its share goes to ranks of its node that lack some, in the order of their numbers, then
  /// to others. In time linear in draws and ranks.
  void assign(std::span<const uint16_t> owners);

  uint16_t consumer(uint64_t draw) const { return consumers_[draw]; }
  /// Its place in the consumer's batch: consumers receive their draws in the order of the draws.
  uint32_t place(uint64_t draw) const { return places_[draw]; }
  uint64_t share(uint32_t rank) const;  ///< items of the batch of `rank`

  uint32_t num_ranks() const { return static_cast<uint32_t>(nodes_.size()); }

 private:
  /// Ranks in the order in which they take surplus; those before `first` lack nothing any more.
  struct Takers {
    std::vector<uint16_t> ranks;
    size_t first = 0;
  };

  void assign_in_order();
  void keep_shares(std::span<const uint16_t> owners);
  void give_surplus(std::span<const uint16_t> owners);
  /// The next rank that still lacks an item, which it has then; or kNobody.
  uint16_t take(Takers& takers);

  std::vector<uint32_t> nodes_;
  Locality locality_;
  Numbering numbering_;
  std::vector<Takers> ranks_of_;  ///< by node
  Takers everybody_;
  std::vector<uint16_t> consumers_;
  std::vector<uint32_t> places_;
  std::vector<std::vector<uint32_t>> surplus_;  ///< by part: draws beyond their owner's share
  std::vector<uint32_t> left_;                  ///< of them, what no rank of the node takes
  std::vector<uint32_t> lacks_;                 ///< by rank: items
};

}  // namespace gear::group
