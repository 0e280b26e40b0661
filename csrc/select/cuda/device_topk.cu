// The largest priorities, as select::Order, by radix selection: keys (priority, then lower slot
// first) are all different, so that six passes over the priorities find the exact key of the last
// one to be taken, a seventh collects, and a sort orders what was collected. 28 bytes read a step.
#include <algorithm>
#include <cub/device/device_radix_sort.cuh>

#include "base/cuda/last_block.cuh"
#include "select/cuda/device_draw.cuh"

namespace gear::select {
namespace {

constexpr int kPasses = 6;
constexpr int kMaxBits = 11;
constexpr unsigned kBins = 1U << kMaxBits;
constexpr unsigned kBlock = 512;
constexpr uint64_t kMaxBlocks = 1024;

struct Digit {
  int shift;
  int bits;
};
// From the highest: three of the priority, three of the slot.
constexpr Digit kDigits[kPasses] = {{53, 11}, {42, 11}, {32, 10}, {21, 11}, {10, 11}, {0, 10}};

struct SearchState {
  unsigned long long found;   // digits so far of the last key to be taken
  unsigned long long wanted;  // its rank among the keys with these digits, from 1
  unsigned long long collected;
  unsigned blocks_done;
  unsigned histogram[kBins];
};

// Larger for what comes first: a priority has no sign.
__device__ uint64_t key_of(float priority, uint64_t slot) {
  return uint64_t{__float_as_uint(priority)} << 32 | (~slot & 0xffffffffU);
}

__global__ void begin_search(SearchState* state, uint64_t items) {
  for (unsigned bin = threadIdx.x; bin < kBins; bin += kBlock) {
    state->histogram[bin] = 0;
  }
  if (threadIdx.x != 0) {
    return;
  }
  state->found = 0;
  state->wanted = items;
  state->collected = 0;
  state->blocks_done = 0;
}

// By the first warp of the last block: the digit of the wanted key.
__device__ void choose_digit(SearchState* state, const unsigned* histogram, Digit digit) {
  uint64_t above = 0;
  for (unsigned first = kBins; first > 0; first -= store::kWarpSize) {
    const unsigned bin = first - 1 - static_cast<unsigned>(store::lane_id());
    const uint64_t sum = above + store::warp_running_sum(uint64_t{histogram[bin]});
    const unsigned reached = __ballot_sync(store::kWholeWarp, sum >= state->wanted);
    if (reached != 0) {
      if (store::lane_id() == __ffs(static_cast<int>(reached)) - 1) {
        state->found |= uint64_t{bin} << digit.shift;
        state->wanted -= sum - histogram[bin];
      }
      return;
    }
    above = __shfl_sync(store::kWholeWarp, sum, store::kWarpSize - 1);
  }
}

// The priorities by slot, and of which slots they count.
struct Candidates {
  const float* priorities;
  uint64_t count;
  store::StepWords steps;
  base::Divider page_steps;

  __device__ bool contain(uint64_t slot) const {
    const uint32_t page = page_steps.divide(static_cast<uint32_t>(slot));
    return store::has_step(steps.words, steps.per_page, page,
                           page_steps.remainder(static_cast<uint32_t>(slot), page));
  }
};

__global__ void count_digits(Candidates candidates, Digit digit, SearchState* state) {
  const uint64_t count = candidates.count;
  __shared__ unsigned histogram[kBins];
  for (unsigned bin = threadIdx.x; bin < kBins; bin += kBlock) {
    histogram[bin] = 0;
  }
  __syncthreads();
  const int above = digit.shift + digit.bits;
  const uint64_t found = above < 64 ? state->found >> above : 0;
  const unsigned mask = (1U << digit.bits) - 1;
  // All lanes of a warp make the same number of rounds.
  for (uint64_t base = uint64_t{blockIdx.x} * kBlock; base < count;
       base += uint64_t{gridDim.x} * kBlock) {
    const uint64_t slot = base + threadIdx.x;
    const float priority = slot < count ? __ldg(candidates.priorities + slot) : 0.0F;
    const uint64_t key = key_of(priority, slot);
    const bool counts =
        slot < count && (above >= 64 || key >> above == found) && candidates.contain(slot);
    const unsigned bin = counts ? static_cast<unsigned>(key >> digit.shift) & mask : kBins;
    // Neighbours often share a digit (equal priorities, slots): one addition for them all.
    int same = 0;
    __match_all_sync(store::kWholeWarp, bin, &same);
    if (same != 0) {
      if (counts && store::lane_id() == 0) {
        atomicAdd(&histogram[bin], store::kWarpSize);
      }
    } else if (counts) {
      atomicAdd(&histogram[bin], 1U);
    }
  }
  __syncthreads();
  for (unsigned bin = threadIdx.x; bin < kBins; bin += kBlock) {
    if (histogram[bin] != 0) {
      atomicAdd(&state->histogram[bin], histogram[bin]);
    }
  }
  if (!base::is_last_block(&state->blocks_done)) {
    return;
  }
  for (unsigned bin = threadIdx.x; bin < kBins; bin += kBlock) {
    histogram[bin] = atomicExch(&state->histogram[bin], 0U);
  }
  __syncthreads();
  if (threadIdx.x < store::kWarpSize) {
    choose_digit(state, histogram, digit);
  }
}

__global__ void collect(Candidates candidates, uint64_t items, SearchState* state, uint64_t* keys) {
  for (uint64_t slot = uint64_t{blockIdx.x} * kBlock + threadIdx.x; slot < candidates.count;
       slot += uint64_t{gridDim.x} * kBlock) {
    const uint64_t key = key_of(__ldg(candidates.priorities + slot), slot);
    if (key < state->found || !candidates.contain(slot)) {
      continue;
    }
    const uint64_t place = atomicAdd(&state->collected, 1ULL);
    if (place < items) {
      keys[place] = key;
    }
  }
}

__global__ void unpack(const uint64_t* keys, uint64_t items, store::StepNames names,
                       DeviceDraw out) {
  const uint64_t item = uint64_t{blockIdx.x} * kBlock + threadIdx.x;
  if (item >= items) {
    return;
  }
  const uint32_t slot = ~static_cast<uint32_t>(keys[item]);
  write_anchor(out, names, item, slot, names.page_steps.divide(slot));
  out.probabilities[item] = 1.0F;
  out.weights[item] = 1.0F;
}

class DeviceTopK final : public DeviceSampler {
 public:
  explicit DeviceTopK(const DeviceSamplerParts& parts)
      : DeviceSampler(parts),
        steps_(mirror().steps(parts.options.lookahead, parts.options.mask)),
        state_(1, mirror().device()),
        keys_(parts.most_items, mirror().device()),
        sorted_(parts.most_items, mirror().device()) {
    mirror().require_priorities();
    const base::OnDevice current(mirror().device());
    uint64_t bytes = 0;
    GEAR_CUDA_TRY(cub::DeviceRadixSort::SortKeysDescending(
        nullptr, bytes, keys_.get(), sorted_.get(), parts.most_items, 0, 64, mirror().stream()));
    scratch_ = base::DeviceArray<std::byte>(std::max<uint64_t>(bytes, 1), mirror().device());
  }

  void launch(uint64_t items, const DeviceDraw& out) override {
    const base::OnDevice current(mirror().device());
    const cudaStream_t stream = mirror().stream();
    const store::DeviceView& view = mirror().view();
    const uint64_t slots = view.num_pages * view.page_steps;
    const auto blocks = static_cast<unsigned>(std::min(kMaxBlocks, (slots + kBlock - 1) / kBlock));
    const Candidates candidates{view.priorities, slots, steps_->words(),
                                base::Divider(static_cast<uint32_t>(view.page_steps))};
    begin_search<<<1, kBlock, 0, stream>>>(state_.get(), items);
    GEAR_CUDA_TRY(cudaGetLastError());
    for (const Digit& digit : kDigits) {
      count_digits<<<blocks, kBlock, 0, stream>>>(candidates, digit, state_.get());
      GEAR_CUDA_TRY(cudaGetLastError());
    }
    collect<<<blocks, kBlock, 0, stream>>>(candidates, items, state_.get(), keys_.get());
    GEAR_CUDA_TRY(cudaGetLastError());
    uint64_t bytes = scratch_.bytes();
    GEAR_CUDA_TRY(cub::DeviceRadixSort::SortKeysDescending(scratch_.get(), bytes, keys_.get(),
                                                           sorted_.get(), items, 0, 64, stream));
    unpack<<<static_cast<unsigned>((items + kBlock - 1) / kBlock), kBlock, 0, stream>>>(
        sorted_.get(), items, store::step_names(view, store::Unit::kStep), out);
    GEAR_CUDA_TRY(cudaGetLastError());
  }

  bool capturable() const override { return false; }

 private:
  std::shared_ptr<const store::DeviceDrawable> steps_;
  base::DeviceArray<SearchState> state_;
  base::DeviceArray<uint64_t> keys_;
  base::DeviceArray<uint64_t> sorted_;
  base::DeviceArray<std::byte> scratch_;
};

}  // namespace

std::unique_ptr<DeviceSampler> make_device_topk(const DeviceSamplerParts& parts) {
  return std::make_unique<DeviceTopK>(parts);
}

}  // namespace gear::select
