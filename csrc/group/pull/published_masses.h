#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "group/pull/published_shards.h"

namespace gear::group {

/// Where a draw fell: the `nth` of the steps of a page that may be drawn.
struct PublishedPlace {
  uint32_t owner;
  uint32_t page;
  uint64_t nth;
};

/// The steps that all ranks offer, as last published, laid end to end: owner after owner, page
/// after page. As a group's draw sees them, but read level by level:
///
///     look()   top masses of all owners            one read an owner
///     find()   64 masses below, down to the pages  one read a target and level
///
/// Each choice is in proportion to masses that are read together: while owners stand still every
/// step has the same chance exactly; when they change between two levels, that of the last read.
class PublishedMasses {
 public:
  /// `shards` is the caller's and outlives it.
  explicit PublishedMasses(PublishedShards& shards);

  /// Reads the tops; returns their sum. Throws TransportError.
  uint64_t look();

  /// Where targets in [0, look()) fall; kNone as page where there is nothing left. As many places
  /// as targets. Throws TransportError.
  void find(std::span<const uint64_t> targets, std::span<PublishedPlace> places);

 private:
  /// A target on its way down.
  struct Descent {
    size_t level;
    uint64_t node;
    uint64_t rest;  ///< below the node's mass
    uint64_t mass;
  };

  PublishedShards& shards_;
  std::vector<uint64_t> tops_;    // running sums of the owners' top masses, one behind the other
  std::vector<uint64_t> begins_;  // by owner: its first, and their number
  std::vector<Descent> descents_;
  std::vector<uint64_t> masses_;  // groups of 64
  std::vector<PublishedShards::Read> reads_;
};

}  // namespace gear::group
