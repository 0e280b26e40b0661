#pragma once

#include <memory>

#include "base/numbers/philox.h"
#include "select/cuda/device_sampler.h"
#include "store/mirror/cuda/device_search.cuh"
#include "store/mirror/cuda/step_words.cuh"

namespace gear::select {

constexpr uint64_t kDrawStream = 0;  ///< of the generator, as select::Independent

/// Where a sequence of draws stands, in device memory: kernels with the same arguments continue it.
struct DrawState {
  unsigned long long made;
  double beta;
  unsigned least;        ///< bits of the least probability of this selection
  unsigned blocks_done;  ///< of the kernel that runs
};

constexpr unsigned kNoLeast = 0x7f800000;  ///< infinity

__device__ inline base::Draw128 draw_bits(uint64_t seed, uint64_t number) {
  return base::philox(seed, kDrawStream, number);
}
/// Where draw `number` of the sequence falls in [0, total).
__device__ inline uint64_t draw_target(uint64_t seed, uint64_t number, uint64_t total) {
  return base::scale_to(draw_bits(seed, number), total);
}
/// The same of a total that is known to be narrow.
__device__ inline uint32_t draw_target(uint64_t seed, uint64_t number, uint32_t total) {
  const base::Draw128 draw = draw_bits(seed, number);
  uint64_t carried = 0;
  for (const uint64_t half : {draw.lo, draw.hi}) {
    carried = (static_cast<uint32_t>(half) * uint64_t{total} + carried) >> 32;
    carried = ((half >> 32) * total + carried) >> 32;
  }
  return static_cast<uint32_t>(carried);
}

/// The steps, or (null) episodes, that may be drawn, counted by page, and where those of a page
/// are.
struct CountedItems {
  std::shared_ptr<const store::DeviceDrawable> steps;
  store::DeviceTree counts;

  CountedItems(const SamplerOptions& options, store::DeviceIndex& mirror)
      : steps(options.unit == store::Unit::kStep ? mirror.steps(options.lookahead, options.mask)
                                                 : nullptr),
        counts(steps ? steps->counts() : mirror.view().heads) {}

  /// Calls with what says which row of a page its k-th item is. An episode is its head page's only.
  template <class Launch>
  void with_rows(const Launch& launch) const {
    const store::StepWords holes = steps ? steps->holes() : store::StepWords{};
    if (holes.words != nullptr) {
      launch(holes);
    } else {
      launch(store::FirstRows{});
    }
  }
};

/// Writes all of `out` but probability and weight: of an anchor in `page`.
__device__ inline void write_anchor(const DeviceDraw& out, const store::StepNames& names,
                                    uint64_t item, uint32_t slot, uint32_t page) {
  out.slots[item] = slot;
  if (out.ids == nullptr) {
    return;
  }
  out.ids[item] = names.id_of(slot, names.pages[page].generation);
  out.lengths[item] = 1;
  out.mask[item] = true;
}

// What DeviceSampler::make() chooses among.

/// Of items one wide: independent, or of a shuffled epoch.
std::unique_ptr<DeviceSampler> make_device_equal(const DeviceSamplerParts& parts);
/// Of steps by their weights, independent.
std::unique_ptr<DeviceSampler> make_device_weighted(const DeviceSamplerParts& parts);
/// Of steps by priority, the largest first.
std::unique_ptr<DeviceSampler> make_device_topk(const DeviceSamplerParts& parts);

/// The device's copy of how many independent draws a law has made, and of its beta.
class DevicePosition {
 public:
  /// Memory of the mirror's GPU; on its stream from there on.
  DevicePosition(const store::DeviceIndex& mirror, const Law& law);

  DrawState* get() const { return state_.get(); }
  /// Where the law is now.
  void restore(const Law& law);

 private:
  const store::DeviceIndex& mirror_;
  base::DeviceArray<DrawState> state_;
};

}  // namespace gear::select
