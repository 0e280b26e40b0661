#include <algorithm>
#include <bit>
#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>

#include "base/errors.h"
#include "plan/cuda/device_plan.h"
#include "plan/cuda/plan_item.cuh"

namespace gear::plan {
namespace {

using store::kNone;

constexpr uint32_t kThreadBits = 8;
constexpr uint32_t kThreads = 1U << kThreadBits;
constexpr uint32_t kMaxLaneBits = 5;        // a warp an item
constexpr uint32_t kWindowsPerLaunch = 32;  // keeps the parameters of a kernel below 4 KiB

using BlockSum = cub::BlockReduce<uint64_t, kThreads>;
using BlockScan = cub::BlockScan<uint32_t, kThreads>;

struct WindowParameters {
  PlanWindow window;
  int32_t* lengths;
  bool* mask;
  int32_t* cu_seqlens;
  uint32_t* rows;
  uint32_t* sums;
  uint64_t* progress;  // steps so far, blocks done
  PlanTotals* totals;
  uint32_t length;
  uint32_t lane_bits;  // 2^lane_bits threads share an item
};

struct PlanParameters {
  PlanTables tables;
  const uint32_t* slots;
  int64_t* ids;  // null: written by another launch
  uint32_t items;
  WindowParameters windows[kWindowsPerLaunch];
};

// What plan.windows[0] delivers of a derived output.
struct DerivedParameters {
  std::byte* data;
  Derived kind;
  bool packed;
};
static_assert(sizeof(PlanParameters) + sizeof(DerivedParameters) <= 4096,
              "more needs a newer compiler and driver");

template <bool kStanding = false>
__device__ PlannedItem plan_item(const PlanParameters& plan, const WindowParameters& window,
                                 uint32_t item, bool writes_id) {
  const PlannedItem planned = plan_item<kStanding>(plan.tables, window.window, plan.slots[item]);
  if (writes_id && plan.ids != nullptr) {
    plan.ids[item] = planned.id;
  }
  return planned;
}

// Adds a block's steps to the window's; true in every thread of the block that is the last to do so
// (of `blocks`), where `steps` becomes the window's. Called by whole blocks.
__device__ bool last_to_add(const WindowParameters& window, uint32_t blocks, uint64_t& steps) {
  __shared__ typename BlockSum::TempStorage storage;
  __shared__ uint64_t total;
  __shared__ bool last;
  const uint64_t sum = BlockSum(storage).Sum(steps);
  if (threadIdx.x == 0) {
    auto* added = reinterpret_cast<unsigned long long*>(window.progress);
    atomicAdd(added, static_cast<unsigned long long>(sum));
    __threadfence();  // the steps, and what this block wrote before, are there before its number
    last = atomicAdd(added + 1, 1ULL) + 1 == blocks;
    if (last) {
      __threadfence();
      total = atomicExch(added, 0ULL);
      atomicExch(added + 1, 0ULL);
    }
  }
  __syncthreads();
  if (last) {
    steps = total;
  }
  return last;
}

// One group of threads an item: a padded batch, where the place of each row is known.
__global__ void __launch_bounds__(kThreads)
    plan_padded(const __grid_constant__ PlanParameters plan) {
  const WindowParameters& window = plan.windows[blockIdx.y];
  const uint32_t items_bits = kThreadBits - window.lane_bits;  // of a block
  const uint32_t begin = blockIdx.x << items_bits;
  if (begin >= plan.items && blockIdx.x > 0) {
    return;
  }
  const uint32_t lanes = 1U << window.lane_bits;
  const uint32_t lane = threadIdx.x & (lanes - 1);
  const uint32_t item = begin + (threadIdx.x >> window.lane_bits);
  uint64_t steps = 0;
  if (item < plan.items) {
    const PlannedItem planned = plan_item(plan, window, item, lane == 0 && blockIdx.y == 0);
    const Extent& extent = planned.extent;
    if (lane == 0) {
      window.lengths[item] = static_cast<int32_t>(extent.count);
      steps = extent.count;
    }
    SlotWalk walk(plan.tables, planned);
    const uint64_t target = uint64_t{item} * window.length;
    for (uint32_t i = lane; i < window.length; i += lanes) {
      const bool there = i - extent.place < extent.count;  // false below place, by wrapping
      window.mask[target + i] = there;
      window.rows[target + i] = there ? walk.slot_of(extent.first + (i - extent.place)) : kNone;
    }
  }
  if (window.totals == nullptr) {
    return;
  }
  const uint32_t blocks = max(1U, (plan.items + (1U << items_bits) - 1) >> items_bits);
  if (last_to_add(window, blocks, steps) && threadIdx.x == 0) {
    *window.totals = {uint64_t{plan.items} * window.length, steps};
  }
}

// One thread an item: how many steps each has. The last block of a window turns the blocks' sums
// into the rows that lie before each.
__global__ void __launch_bounds__(kThreads)
    measure_packed(const __grid_constant__ PlanParameters plan) {
  const WindowParameters& window = plan.windows[blockIdx.y];
  const uint32_t item = blockIdx.x * kThreads + threadIdx.x;
  uint32_t count = 0;
  if (item < plan.items) {
    count = plan_item(plan, window, item, blockIdx.y == 0).extent.count;
    window.lengths[item] = static_cast<int32_t>(count);
  }
  __shared__ typename BlockSum::TempStorage sum_storage;
  const uint64_t sum = BlockSum(sum_storage).Sum(uint64_t{count});
  if (threadIdx.x == 0) {
    window.sums[blockIdx.x] = static_cast<uint32_t>(sum);
  }
  uint64_t steps = count;
  if (!last_to_add(window, gridDim.x, steps)) {
    return;
  }
  __shared__ typename BlockScan::TempStorage scan_storage;
  uint32_t before = 0;
  for (uint32_t begin = 0; begin < gridDim.x; begin += kThreads) {
    const uint32_t block = begin + threadIdx.x;
    // Past the L1 cache, which may hold what was there before the other blocks wrote.
    const uint32_t own = block < gridDim.x ? __ldcg(window.sums + block) : 0;
    uint32_t place;
    uint32_t all;
    BlockScan(scan_storage).ExclusiveSum(own, place, all);
    if (block < gridDim.x) {
      window.sums[block] = before + place;
    }
    before += all;
    __syncthreads();
  }
  if (threadIdx.x != 0) {
    return;
  }
  window.cu_seqlens[plan.items] = static_cast<int32_t>(before);
  if (window.totals != nullptr) {
    *window.totals = {steps, steps};
  }
}

// One group of threads an item, behind measure_packed.
__global__ void __launch_bounds__(kThreads)
    place_packed(const __grid_constant__ PlanParameters plan) {
  const WindowParameters& window = plan.windows[blockIdx.y];
  const uint32_t per_block = kThreads >> window.lane_bits;
  const uint32_t first = blockIdx.x * per_block;
  if (first >= plan.items) {
    return;
  }
  // Rows before this block's: those before its part of kThreads items, and those of the items of
  // the part that other blocks place.
  __shared__ typename BlockScan::TempStorage scan_storage;
  __shared__ uint32_t places[kThreads];
  const uint32_t part = first / kThreads;
  const uint32_t measured = part * kThreads + threadIdx.x;
  const uint32_t own = measured < plan.items ? static_cast<uint32_t>(window.lengths[measured]) : 0;
  uint32_t place;
  BlockScan(scan_storage).ExclusiveSum(own, place);
  places[threadIdx.x] = window.sums[part] + place;
  __syncthreads();
  const uint32_t lanes = 1U << window.lane_bits;
  const uint32_t lane = threadIdx.x & (lanes - 1);
  const uint32_t item = first + (threadIdx.x >> window.lane_bits);
  if (item < plan.items) {
    const PlannedItem planned = plan_item(plan, window, item, false);
    const uint32_t target = places[item - part * kThreads];
    if (lane == 0) {
      window.cu_seqlens[item] = static_cast<int32_t>(target);
    }
    SlotWalk walk(plan.tables, planned);
    for (uint32_t i = lane; i < planned.extent.count; i += lanes) {
      window.rows[target + i] = walk.slot_of(planned.extent.first + i);
    }
  }
  // What no item fills is marked, in this block's share of the rows.
  const uint32_t filled = static_cast<uint32_t>(window.cu_seqlens[plan.items]);
  const uint64_t begin = uint64_t{first} * window.length;
  const uint64_t end = uint64_t{min(first + per_block, plan.items)} * window.length;
  for (uint64_t row = max(begin, uint64_t{filled}) + threadIdx.x; row < end; row += kThreads) {
    window.rows[row] = kNone;
  }
}

// One thread a row of the window: what derived outputs say of its step; behind the window's plan,
// whose cu_seqlens are read where the batch is packed.
__global__ void __launch_bounds__(kThreads)
    derive_rows(const __grid_constant__ PlanParameters plan,
                const __grid_constant__ DerivedParameters derived) {
  const WindowParameters& window = plan.windows[0];
  const uint64_t number = uint64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (number >= uint64_t{plan.items} * window.length) {
    return;
  }
  const auto item = static_cast<uint32_t>(number / window.length);
  const auto row = static_cast<uint32_t>(number - uint64_t{item} * window.length);
  const PlannedItem planned = plan_item<true>(plan, window, item, false);
  const uint32_t count = planned.extent.count;
  uint64_t target = number;
  uint32_t i = row - planned.extent.place;  // not below count where row is below place, by wrapping
  if (derived.packed) {
    if (row >= count) {
      return;
    }
    i = row;
    target = static_cast<uint64_t>(window.cu_seqlens[item]) + row;
  }
  put_derived(derived.kind, planned.standing, i, count, derived.data, target);
}

uint32_t lane_bits_of(uint64_t length) {
  return std::min(kMaxLaneBits, static_cast<uint32_t>(std::bit_width(length - 1)));
}

uint32_t blocks_for(uint64_t items, uint64_t per_block) {
  return static_cast<uint32_t>(std::max<uint64_t>(1, (items + per_block - 1) / per_block));
}

}  // namespace

DevicePlan::DevicePlan(std::shared_ptr<const BatchLayout> layout, const store::PageLayout& pages,
                       uint64_t num_slots, int device, uint64_t most_batches)
    : layout_(std::move(layout)),
      page_steps_(pages.page_steps),
      most_items_(most_batches * layout_->batch_size) {
  if (num_slots > kNone) {
    throw base::InvalidArgument(base::cat("[loader] a GPU plans for less than 2^32 steps, not ",
                                          num_slots, ": lower the capacity of each shard"));
  }
  const base::OnDevice current(device);
  uint64_t num_rows = 0;
  for (const BatchLayout::SharedWindow& shared : layout_->windows) {
    num_rows += most_items_ * shared.window.length();
  }
  slots_ = base::DeviceArray<uint32_t>(layout_->batch_size, device);
  row_slots_ = base::DeviceArray<uint32_t>(num_rows, device);
  if (layout_->packed) {
    const uint64_t parts = blocks_for(layout_->batch_size, kThreads);
    sums_ = base::DeviceArray<uint32_t>(parts * layout_->windows.size(), device);
  }
  progress_ = base::DeviceArray<uint64_t>(2 * layout_->windows.size(), device);
  const base::Stream stream(device);
  GEAR_CUDA_TRY(cudaMemsetAsync(progress_.get(), 0, progress_.bytes(), stream));
  stream.synchronize();  // no other stream waits for it
  uint32_t* rows = row_slots_.get();
  for (const BatchLayout::SharedWindow& shared : layout_->windows) {
    if (!layout_->packed && !anchors_window_ && shared.window.start == 0 &&
        shared.window.stop == 1) {
      anchors_window_ = rows_.size();
    }
    row_slots_of_.push_back(rows);
    rows_.push_back({rows});
    rows += most_items_ * shared.window.length();
  }
}

void DevicePlan::launch(const store::DeviceView& view, store::Unit unit, uint64_t items,
                        std::byte* block, PlanTotals* totals, cudaStream_t stream,
                        uint64_t first_item, bool named) {
  GEAR_CHECK(items <= layout_->batch_size && first_item + items <= most_items_);
  GEAR_CHECK(!named || (anchors_window_ && totals == nullptr && first_item == 0));
  GEAR_CHECK(view.page_steps == page_steps_);
  const base::OnDevice current(slots_.device());
  const uint64_t parts = blocks_for(layout_->batch_size, kThreads);
  PlanParameters plan{};
  plan.tables = plan_tables(view, unit);
  plan.slots = slots_.get();
  plan.items = static_cast<uint32_t>(items);
  plan.ids = named ? nullptr : reinterpret_cast<int64_t*>(block + layout_->ids);
  const size_t num_windows = layout_->windows.size();
  for (size_t w = 0; w < num_windows;) {
    uint32_t lane_bits = 0;
    size_t count = 0;
    for (; w < num_windows && count < kWindowsPerLaunch; ++w) {
      if (named && w == anchors_window_) {
        rows_[w] = {slots_.get(), nullptr, plan.items, nullptr};
        continue;
      }
      const BatchLayout::SharedWindow& shared = layout_->windows[w];
      const uint64_t length = shared.window.length();
      lane_bits = std::max(lane_bits, lane_bits_of(length));
      WindowParameters& window = plan.windows[count++];
      window = {
          .window = shared.window,
          .lengths = reinterpret_cast<int32_t*>(block + shared.lengths),
          .mask = reinterpret_cast<bool*>(block + shared.mask),
          .cu_seqlens = reinterpret_cast<int32_t*>(block + shared.cu_seqlens),
          .rows = row_slots_of_[w] + first_item * length,
          .sums = layout_->packed ? sums_.get() + w * parts : nullptr,
          .progress = progress_.get() + 2 * w,
          .totals = totals == nullptr ? nullptr : totals + w,
          .length = static_cast<uint32_t>(length),
          .lane_bits = lane_bits_of(length),
      };
      rows_[w].slots = row_slots_of_[w];
      rows_[w].count = static_cast<uint32_t>((first_item + items) * length);
      rows_[w].filled = layout_->packed && first_item == 0 ? window.cu_seqlens + items : nullptr;
    }
    if (count == 0) {
      break;
    }
    const auto windows = static_cast<unsigned>(count);
    const dim3 by_group(blocks_for(items, kThreads >> lane_bits), windows);
    if (layout_->packed) {
      measure_packed<<<dim3(blocks_for(items, kThreads), windows), kThreads, 0, stream>>>(plan);
      GEAR_CUDA_TRY(cudaGetLastError());
      place_packed<<<by_group, kThreads, 0, stream>>>(plan);
    } else {
      plan_padded<<<by_group, kThreads, 0, stream>>>(plan);
    }
    GEAR_CUDA_TRY(cudaGetLastError());
    plan.ids = nullptr;
  }
  for (const BatchLayout::DerivedOutput& one : layout_->derived) {
    const BatchLayout::SharedWindow& shared = layout_->windows[one.window];
    const uint64_t length = shared.window.length();
    plan.windows[0] = {};
    plan.windows[0].window = shared.window;
    plan.windows[0].cu_seqlens = reinterpret_cast<int32_t*>(block + shared.cu_seqlens);
    plan.windows[0].length = static_cast<uint32_t>(length);
    const DerivedParameters derived{block + one.data, one.kind, layout_->packed};
    derive_rows<<<blocks_for(items * length, kThreads), kThreads, 0, stream>>>(plan, derived);
    GEAR_CUDA_TRY(cudaGetLastError());
  }
}

}  // namespace gear::plan
