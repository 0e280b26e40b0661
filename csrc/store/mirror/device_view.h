#pragma once

#include <cstdint>

#include "base/numbers/divider.h"
#include "store/drawable/fixed_point.h"
#include "store/episode.h"
#include "store/id.h"

// What kernels see of an index: plain pointers into the memory of one GPU, passed by value.

namespace gear::store {

/// Sums of N unsigned 64-bit weights, fan-out 32: a node of a level is the sum of 32 neighbours of
/// the level below, so that a warp reads a node's children with one load of 256 bytes. Levels are
/// padded with zeros to multiples of 32. The last level is one node, the total.
/// Integer sums: whatever the order of updates, equal to the bit to store::SumTree of these
/// weights.
struct DeviceTree {
  static constexpr uint64_t kFanout = 32;
  static constexpr int kFanoutBits = 5;
  static constexpr int kMaxLevels = 8;  ///< 2^35 leaves

  uint64_t* levels[kMaxLevels];  ///< leaves first
  uint64_t counts[kMaxLevels];   ///< nodes, without the padding
  int num_levels;
};

/// As store::WeightTree.
struct DeviceWeights {
  DeviceTree tree;
  const WeightScale* scale;  ///< in memory of the GPU, as what weighs in the tree
  uint64_t* least;           ///< see least_node(); null: nobody asked for it
};

/// One bit a step, as store::StepBits.
struct StepWords {
  const uint64_t* words;  ///< null: the steps of every page are its first rows
  uint32_t per_page;
};

/// What a plan needs of an episode; see store::Episode.
struct alignas(32) DeviceEpisode {
  uint64_t begin;
  uint64_t end;
  uint64_t closing_columns;
  EpisodeState state;
};

/// Valid for the life of the DeviceIndex; the pointers never change but for `priorities`, which is
/// null until some sampler needs them.
struct DeviceView {
  const Page* pages;
  const DeviceEpisode* episodes;  ///< by Page::episode
  const float* priorities;        ///< by slot
  DeviceTree heads;               ///< 1 at the head page of an episode that may be drawn
  uint64_t num_pages;
  uint64_t page_steps;
  uint32_t owner;  ///< rank written into ids
};

/// What names a mirror's steps.
struct StepNames {
  const Page* pages;
  base::Divider page_steps;
  uint32_t owner;
  bool episode_ids;  ///< ids name the episode in place of the step

  /// `generation`: of the slot's page.
  GEAR_HD int64_t id_of(uint32_t slot, uint32_t generation) const {
    return StepId{slot, generation & StepId::kGenerationMask, owner, episode_ids}.pack();
  }
};

inline StepNames step_names(const DeviceView& view, Unit unit) {
  return {view.pages, base::Divider(static_cast<uint32_t>(view.page_steps)), view.owner,
          unit == Unit::kEpisode};
}

}  // namespace gear::store
