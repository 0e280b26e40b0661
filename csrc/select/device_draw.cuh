#pragma once

#include "base/philox.h"
#include "select/device_select.h"
#include "store/device_tree.cuh"

namespace gear::select {

constexpr unsigned kDrawWarps = 8;  // of a block: one draw a warp
constexpr unsigned kDrawBlock = kDrawWarps * store::kWarpSize;
constexpr uint64_t kDrawStream = 0;  // of the generator, as select::Draws

inline unsigned draw_blocks(uint64_t items) {
  return static_cast<unsigned>((items + kDrawWarps - 1) / kDrawWarps);
}

// Where a sequence of draws stands, in device memory: kernels with the same arguments continue it.
struct DrawState {
  unsigned long long made;
  double beta;
  unsigned least;        // bits of the least probability of this selection
  unsigned blocks_done;  // of the kernel that runs
};

constexpr unsigned kNoLeast = 0x7f800000;  // infinity

// The number of the warp's draw in its kernel.
__device__ inline uint64_t draw_number() {
  return uint64_t{blockIdx.x} * kDrawWarps + threadIdx.x / store::kWarpSize;
}

// The warp's draw on a tree: the hit of number `made + item` of the sequence.
__device__ inline store::TreeHit warp_draw(const store::DeviceTree& tree, uint64_t seed,
                                           uint64_t number) {
  const base::Draw128 draw = base::philox(seed, kDrawStream, number);
  return store::warp_find(tree, [&](uint64_t total) { return base::scale_to(draw, total); });
}

// True in one thread of the kernel, when every block has come this far. All threads call it, and
// have read of the state what they need.
__device__ inline bool last_to_finish(DrawState* state) {
  __syncthreads();
  if (threadIdx.x != 0) return false;
  __threadfence();
  if (atomicAdd(&state->blocks_done, 1U) + 1 < gridDim.x) return false;
  state->blocks_done = 0;
  return true;
}

// The device's copy of a position, and the host's.
class DevicePosition {
 public:
  // Memory of the mirror's GPU; on its stream from there on.
  DevicePosition(const store::DeviceIndex& mirror, double beta);

  DrawState* get() const { return state_.get(); }
  uint64_t made() const { return made_; }
  double beta() const { return beta_; }

  void advance(uint64_t draws) { made_ += draws; }
  void restore(uint64_t made, double beta);

 private:
  const store::DeviceIndex& mirror_;
  base::DeviceArray<DrawState> state_;
  uint64_t made_ = 0;
  double beta_ = 0;
};

}  // namespace gear::select
