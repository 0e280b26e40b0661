#include "group/cuda/parcel_sender.h"

#include <algorithm>
#include <bit>

#include "base/cuda/following.cuh"
#include "base/errors.h"
#include "group/cuda/offered_ranges.cuh"
#include "group/cuda/parcel_launch.h"
#include "plan/cuda/plan_item.cuh"
#include "select/cuda/device_draw.cuh"

namespace gear::group {
namespace {

using store::kNone;

constexpr uint32_t kMaxLaneBits = 5;  // a warp an item

struct FoundItems {
  uint32_t* slots;
  float* probabilities;
};

struct FindJob {
  store::DeviceTree tree;
  uint64_t* least_of_all;  // null: that of the own draws counts
  store::StepWords holes;
  OfferedTotals totals;
  DeviceShare share;
  FoundItems found;
  uint64_t page_steps;
  uint32_t rank;
  uint32_t size;
  bool by_page;
  bool steps;
};

// Lowers *least to the least value of any thread of the warp.
__device__ void lower_least(float* least, float value) {
  for (int step = store::kWarpSize / 2; step > 0; step /= 2) {
    value = fminf(value, __shfl_xor_sync(store::kWholeWarp, value, step));
  }
  if (store::lane_id() == 0) {
    atomicMin(reinterpret_cast<unsigned*>(least),
              __float_as_uint(value));  // positive: ordered as their bits
  }
}

struct Found {
  uint32_t slot;
  float probability;
};

// `scale`: of weights, to probabilities.
__device__ Found found_at(const FindJob& job, const store::TreeHit& hit, double scale) {
  if (job.by_page) {
    const auto page = static_cast<uint32_t>(hit.leaf);
    const auto k = static_cast<uint32_t>(hit.remainder);
    const uint32_t row = job.steps ? store::nth_row(job.holes, page, k) : 0;
    return {static_cast<uint32_t>(page * job.page_steps + row), static_cast<float>(scale)};
  }
  return {static_cast<uint32_t>(hit.leaf),
          static_cast<float>(static_cast<double>(hit.weight) * scale)};
}

// What the rank says of its probabilities before it looks at its draws.
__device__ float least_so_far(const FindJob& job, double scale) {
  const uint64_t weight =
      job.least_of_all != nullptr ? store::least_weight(job.tree, job.least_of_all) : 0;
  return weight > 0 ? static_cast<float>(static_cast<double>(weight) * scale)
                    : __uint_as_float(select::kNoLeast);
}

// `Sum` holds every sum of the tree: see store::search.
template <class Sum>
__global__ void __launch_bounds__(store::kMostSearchThreads)
    find_items(const __grid_constant__ FindJob job) {
  __shared__ OfferedRanges ranges;
  base::follow();
  base::let_next_in();
  ranges.make(job.totals, job.rank, job.size);
  __syncthreads();
  const uint64_t count = job.share.drawn[job.rank];
  const double scale = ranges.scale();
  float least = least_so_far(job, scale);
  store::search<Sum, true>(
      job.tree, count, [&](uint64_t item, Sum) { return job.share.targets[item]; },
      [&](uint64_t item, const store::TreeHit& hit) {
        const Found found = found_at(job, hit, scale);
        job.found.slots[item] = found.slot;
        job.found.probabilities[item] = found.probability;
        least = fminf(least, found.probability);
      });
  lower_least(job.share.least, least);
}

// Who receives the draws of a rank, by the counts of all: see Assignment. In shared memory.
struct Consumers {
  uint32_t kept[kMostGpuRanks];
  uint32_t lack_begin[kMostGpuRanks + 1];
  uint32_t surplus_begin;  // of this rank's surplus

  __device__ void make(const uint32_t* drawn, uint32_t share, uint32_t rank, uint32_t size) {
    if (threadIdx.x != store::kWarpSize) {  // beside OfferedRanges::make
      return;
    }
    uint32_t lack = 0;
    uint32_t surplus = 0;
    for (uint32_t r = 0; r < size; ++r) {
      kept[r] = min(drawn[r], share);
      lack_begin[r] = lack;
      lack += share - kept[r];
      if (r == rank) {
        surplus_begin = surplus;
      }
      surplus += drawn[r] - kept[r];
    }
    lack_begin[size] = lack;
  }
};

struct WrittenWindow {
  plan::PlanWindow window;
  uint64_t pieces;  // in an inbox
  uint64_t standings;
  uint64_t rows;
  uint32_t length;
  bool derives;
  bool first;  // of all: with what is written once an item
};

struct WriteJob {
  plan::PlanTables tables;
  DeviceShare share;
  FoundItems found;
  std::byte* inboxes[kMostGpuRanks];
  uint64_t ids;  // in an inbox
  uint64_t probabilities;
  uint32_t batch_size;
  uint32_t rank;
  uint32_t size;
  uint32_t num_windows;
  uint32_t lane_bits;  // 2^lane_bits threads share an item's window
  uint32_t slot_bits;
  bool by_number;
  WrittenWindow windows[kWindowsPerLaunch];
};
static_assert(sizeof(FindJob) + sizeof(WriteJob) <= 4096, "more needs a newer compiler and driver");

struct Place {
  std::byte* inbox;  // of the consumer
  uint32_t item;     // of its batch
};

// Where an own draw goes.
__device__ Place place_of(const WriteJob& job, const Consumers& consumers, uint32_t item) {
  uint32_t consumer = job.rank;
  uint32_t place = item;
  if (job.by_number) {
    const uint32_t number = job.share.numbers[item];
    consumer = number / job.batch_size;
    place = number - consumer * job.batch_size;
  } else if (item >= consumers.kept[job.rank]) {
    const uint32_t position = consumers.surplus_begin + (item - consumers.kept[job.rank]);
    consumer = 0;
    while (consumers.lack_begin[consumer + 1] <= position) {
      ++consumer;
    }
    place = consumers.kept[consumer] + position - consumers.lack_begin[consumer];
  }
  return {job.inboxes[consumer], place};
}

// Writes what there is of an item in one window, by `lanes` threads of which this is one.
__device__ void write_window(const WriteJob& job, const WrittenWindow& window, const Place& place,
                             uint32_t slot, uint32_t lane, uint32_t lanes) {
  const plan::PlannedItem planned = plan::plan_item(job.tables, window.window, slot);
  const plan::Extent& extent = planned.extent;
  if (lane == 0) {
    reinterpret_cast<uint2*>(place.inbox + window.pieces)[place.item] = {extent.count,
                                                                         extent.place};
    if (window.derives) {
      reinterpret_cast<uint64_t*>(place.inbox + window.standings)[place.item] =
          planned.standing.pack();
    }
    if (window.first) {
      reinterpret_cast<int64_t*>(place.inbox + job.ids)[place.item] = planned.id;
    }
  }
  auto* const rows =
      reinterpret_cast<uint32_t*>(place.inbox + window.rows) + uint64_t{place.item} * window.length;
  const uint32_t owner = job.slot_bits < 32 ? job.rank << job.slot_bits : 0;
  plan::SlotWalk walk(job.tables, planned);
  for (uint32_t i = lane; i < window.length; i += lanes) {
    const bool there = i - extent.place < extent.count;  // false below place, by wrapping
    rows[i] = there ? owner | walk.slot_of(extent.first + (i - extent.place)) : kNone;
  }
}

__device__ void write_probability(const WriteJob& job, const Place& place, float probability) {
  reinterpret_cast<float*>(place.inbox + job.probabilities)[place.item] = probability;
}

// A group of threads an item and window.
__global__ void __launch_bounds__(kParcelThreads)
    write_items(const __grid_constant__ WriteJob job) {
  __shared__ Consumers consumers;
  base::follow();
  base::let_next_in();
  consumers.make(job.share.drawn, job.batch_size, job.rank, job.size);
  __syncthreads();
  const WrittenWindow& window = job.windows[blockIdx.y];
  const uint32_t lanes = 1U << job.lane_bits;
  const uint32_t lane = threadIdx.x & (lanes - 1);
  const uint32_t groups = kParcelThreads >> job.lane_bits;
  const uint32_t count = job.share.drawn[job.rank];
  for (uint32_t item = blockIdx.x * groups + (threadIdx.x >> job.lane_bits); item < count;
       item += gridDim.x * groups) {
    const Place place = place_of(job, consumers, item);
    write_window(job, window, place, job.found.slots[item], lane, lanes);
    if (window.first && lane == 0) {
      write_probability(job, place, job.found.probabilities[item]);
    }
  }
}

// Both at once, where draws are so few that each has a warp: it finds the item, and its lanes share
// the windows.
__global__ void __launch_bounds__(store::kSearchBlock)
    find_and_write(const __grid_constant__ FindJob find, const __grid_constant__ WriteJob job) {
  __shared__ OfferedRanges ranges;
  __shared__ Consumers consumers;
  base::follow();
  base::let_next_in();
  ranges.make(find.totals, find.rank, find.size);
  consumers.make(job.share.drawn, job.batch_size, job.rank, job.size);
  __syncthreads();
  constexpr uint32_t kWarps = store::kSearchBlock / store::kWarpSize;
  const uint32_t count = job.share.drawn[job.rank];
  const double scale = ranges.scale();
  const uint32_t lanes = 1U << job.lane_bits;
  const auto lane = static_cast<uint32_t>(store::lane_id());
  float least = least_so_far(find, scale);
  for (uint32_t item = blockIdx.x * kWarps + threadIdx.x / store::kWarpSize; item < count;
       item += gridDim.x * kWarps) {
    const uint64_t target = job.share.targets[item];
    const store::TreeHit hit = store::warp_find(find.tree, [&](uint64_t) { return target; });
    const Found found = found_at(find, hit, scale);
    least = fminf(least, found.probability);
    const Place place = place_of(job, consumers, item);
    for (uint32_t w = lane >> job.lane_bits; w < job.num_windows;
         w += store::kWarpSize >> job.lane_bits) {
      write_window(job, job.windows[w], place, found.slot, lane & (lanes - 1), lanes);
    }
    if (lane == 0) {
      write_probability(job, place, found.probability);
    }
  }
  lower_least(job.share.least, least);
}

}  // namespace

ParcelSender::ParcelSender(std::shared_ptr<const plan::BatchLayout> layout,
                           const store::PageLayout& pages, uint32_t rank, Locality locality,
                           std::span<std::byte* const> inboxes, int device)
    : layout_(std::move(layout)),
      page_steps_(pages.page_steps),
      rank_(rank),
      size_(static_cast<uint32_t>(inboxes.size())),
      locality_(locality),
      device_(device),
      places_(*layout_),
      slots_(layout_->batch_size * size_, device),
      probabilities_(layout_->batch_size * size_, device) {
  GEAR_CHECK(size_ <= kMostGpuRanks);
  std::ranges::copy(inboxes, inboxes_);
}

void ParcelSender::write(uint64_t number, const Find& find, const store::DeviceView& view,
                         const OfferedTotals& totals, const DeviceShare& share,
                         cudaStream_t stream) {
  const base::OnDevice on(device_);
  const uint64_t items = layout_->batch_size;
  const FoundItems found{slots_.get(), probabilities_.get()};
  const FindJob finding{.tree = find.tree,
                        .least_of_all = find.least_of_all,
                        .holes = find.holes,
                        .totals = totals,
                        .share = share,
                        .found = found,
                        .page_steps = page_steps_,
                        .rank = rank_,
                        .size = size_,
                        .by_page = find.by_page,
                        .steps = find.unit == store::Unit::kStep};
  const size_t num_windows = layout_->windows.size();
  const bool together = !store::is_many(items) && num_windows <= kWindowsPerLaunch;
  if (!together) {
    // There are no 2^32 steps, whatever they weigh.
    const auto kernel = find.by_page ? find_items<uint32_t> : find_items<uint64_t>;
    if (find.by_page) {
      store::launch_search<uint32_t>(kernel, kernel, find.tree, items, stream, finding);
    } else {
      store::launch_search<uint64_t>(kernel, kernel, find.tree, items, stream, finding);
    }
  }
  WriteJob job{};
  job.tables = plan::plan_tables(view, find.unit);
  job.share = share;
  job.found = found;
  for (uint32_t r = 0; r < size_; ++r) {
    job.inboxes[r] = inboxes_[r] + places_.begin(number);
  }
  job.ids = places_.ids;
  job.probabilities = places_.probabilities;
  job.batch_size = static_cast<uint32_t>(items);
  job.rank = rank_;
  job.size = size_;
  job.slot_bits = OwnedSlots::of(size_).slot_bits;
  job.by_number = locality_ == Locality::kOff;
  for (size_t first = 0; first < num_windows; first += kWindowsPerLaunch) {
    const size_t count = std::min<size_t>(kWindowsPerLaunch, num_windows - first);
    uint64_t longest = 1;
    for (size_t i = 0; i < count; ++i) {
      const plan::BatchLayout::SharedWindow& shared = layout_->windows[first + i];
      const ParcelInbox::Window& places = places_.windows[first + i];
      longest = std::max(longest, shared.window.length());
      job.windows[i] = {.window = shared.window,
                        .pieces = places.pieces,
                        .standings = places.standings,
                        .rows = places.rows,
                        .length = static_cast<uint32_t>(shared.window.length()),
                        .derives = shared.derives,
                        .first = first + i == 0};
    }
    job.num_windows = static_cast<uint32_t>(count);
    job.lane_bits = std::min(kMaxLaneBits, static_cast<uint32_t>(std::bit_width(longest - 1)));
    if (together) {
      const uint32_t spare = kMaxLaneBits - static_cast<uint32_t>(std::bit_width(count - 1));
      job.lane_bits = std::min(job.lane_bits, spare);
      constexpr uint64_t kWarps = store::kSearchBlock / store::kWarpSize;
      base::launch_following<find_and_write>(parcel_blocks(items, kWarps), store::kSearchBlock,
                                             stream, finding, job);
    } else {
      const dim3 grid(parcel_blocks(items, kParcelThreads >> job.lane_bits),
                      static_cast<unsigned>(count));
      base::launch_following<write_items>(grid, kParcelThreads, stream, job);
    }
  }
}

}  // namespace gear::group
