#pragma once

#include <algorithm>

#include "base/cuda/staging.h"
#include "store/index/index.h"
#include "store/mirror/delta.h"
#include "store/mirror/device_view.h"

namespace gear::store {

constexpr int kMaxDrawables = 8;    ///< different sets of steps that may be drawn at once
constexpr int kMaxWeightTrees = 8;  ///< different alphas of them, in all

/// Counters and the largest priority, in device memory. A sync reads max_priority[largest] for
/// steps that were appended without a priority, and leaves the new one in the other place.
struct DeviceScalars {
  float max_priority[2];
  float followed;    ///< the largest priority by which the trees weigh
  float max_weight;  ///< of episodes' own, since the last settle()
  unsigned long long stale_updates;
  unsigned long long saturated_weights;
  unsigned blocks_done;  ///< of the kernel that runs
};

/// What kernels that change a mirror see of it; passed by value.
struct DeviceTables {
  struct Steps {
    uint64_t* words;
    DeviceTree counts;
  };
  struct Weights {
    DeviceTree tree;
    WeightScale* scale;
    uint64_t* least;  ///< see least_node(); null: nobody asked for it
    int steps;        ///< whose weights they are
  };

  Page* pages;
  DeviceEpisode* episodes;
  float* priorities;        ///< null: not held, and neither is what follows
  double* episode_weights;  ///< negative: mean of its steps'
  DeviceScalars* scalars;
  DeviceTree heads;
  uint64_t num_slots;
  uint64_t page_steps;
  int largest;  ///< which of scalars->max_priority is the current one
  uint32_t words_per_page;
  int num_steps;
  Steps steps[kMaxDrawables];
  int num_weights;
  Weights weights[kMaxWeightTrees];

  /// Levels of minima to be taken anew behind what sets leaves: all trees of weights have as many.
  int least_levels() const {
    const auto* const end = weights + num_weights;
    const bool any = std::any_of(weights, end, [](const Weights& one) { return one.least; });
    return any ? weights[0].tree.num_levels - 1 : 0;
  }
};

/// Carries what changed in an index to the mirror on a GPU: for each 256 KiB of it one copy and one
/// kernel.
class DeltaSender {
 public:
  DeltaSender(Index& index, int device);

  /// As DeltaEncoder.
  bool up_to_date() const { return encoder_.up_to_date(); }
  void follow_priorities() { encoder_.follow_priorities(); }
  /// Enqueues the changes. `steps`: as tables.steps. Where tables.priorities is set, priorities are
  /// sent, and the largest moves to the other place.
  void send(std::span<const std::shared_ptr<const Drawable>> steps, float index_largest,
            const DeviceTables& tables, cudaStream_t stream);
  /// Whether send() of up to 256 KiB would not wait for the stream.
  bool has_room() const { return staging_.has_free(); }

 private:
  DeltaEncoder encoder_;
  base::Staging staging_;
};

}  // namespace gear::store
