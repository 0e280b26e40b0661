#include <algorithm>
#include <bit>

#include "base/errors.h"
#include "base/numbers/divider.h"
#include "group/cuda/device_meeting.cuh"
#include "group/cuda/device_parcels.h"
#include "group/cuda/offered_ranges.cuh"
#include "plan/cuda/plan_item.cuh"
#include "plan/derived.h"
#include "select/cuda/device_draw.cuh"
#include "store/index/fixed_point.h"

namespace gear::group {
namespace {

using store::kNone;

constexpr uint32_t kThreads = 256;
constexpr uint64_t kMostBlocks = 1056;  // 8 a multiprocessor of an H100
constexpr uint32_t kMaxLaneBits = 5;    // a warp an item
constexpr uint32_t kWindowsPerLaunch = 32;

// A part of the inbox; by 256 bytes, so that each begins a line.
uint64_t part(uint64_t& end, uint64_t bytes) {
  const uint64_t begin = end;
  end = (end + bytes + 255) / 256 * 256;
  return begin;
}

unsigned blocks_for(uint64_t count, uint64_t each) {
  return static_cast<unsigned>(std::clamp<uint64_t>((count + each - 1) / each, 1, kMostBlocks));
}

// ---- the owner's part ----

struct FoundItems {
  uint32_t* slots;
  float* probabilities;
};

struct FindJob {
  store::DeviceTree tree;
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
    return {static_cast<uint32_t>(hit.leaf * job.page_steps + (job.steps ? hit.remainder : 0)),
            static_cast<float>(scale)};
  }
  return {static_cast<uint32_t>(hit.leaf),
          static_cast<float>(static_cast<double>(hit.weight) * scale)};
}

// `Sum` holds every sum of the tree: see store::search.
template <class Sum>
__global__ void __launch_bounds__(store::kMostSearchThreads)
    find_items(const __grid_constant__ FindJob job) {
  __shared__ OfferedRanges ranges;
  ranges.make(job.totals, job.size);
  __syncthreads();
  const uint64_t count = job.share.drawn[job.rank];
  const double scale = 1.0 / static_cast<double>(ranges.all());
  float least = __uint_as_float(select::kNoLeast);
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
__global__ void __launch_bounds__(kThreads) write_items(const __grid_constant__ WriteJob job) {
  __shared__ Consumers consumers;
  consumers.make(job.share.drawn, job.batch_size, job.rank, job.size);
  __syncthreads();
  const WrittenWindow& window = job.windows[blockIdx.y];
  const uint32_t lanes = 1U << job.lane_bits;
  const uint32_t lane = threadIdx.x & (lanes - 1);
  const uint32_t groups = kThreads >> job.lane_bits;
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
  ranges.make(find.totals, find.size);
  consumers.make(job.share.drawn, job.batch_size, job.rank, job.size);
  __syncthreads();
  constexpr uint32_t kWarps = store::kSearchBlock / store::kWarpSize;
  const uint32_t count = job.share.drawn[job.rank];
  const double scale = 1.0 / static_cast<double>(ranges.all());
  const uint32_t lanes = 1U << job.lane_bits;
  const auto lane = static_cast<uint32_t>(store::lane_id());
  float least = __uint_as_float(select::kNoLeast);
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

// ---- the consumer's part ----

struct OpenedWindow {
  const uint2* pieces;
  int32_t* lengths;
  bool* mask;
  base::Divider length;
};

struct OpenJob {
  const int64_t* ids;  // of the inbox; null: opened by another launch
  const float* probabilities;
  int64_t* item_ids;
  float* item_probabilities;
  float* weights;
  const Said* heard;
  double beta;
  uint32_t items;
  uint32_t size;
  OpenedWindow windows[kWindowsPerLaunch];
};
static_assert(sizeof(OpenJob) + sizeof(Meeting) <= 4096, "more needs a newer compiler and driver");

// A thread a row of the window.
__global__ void __launch_bounds__(kThreads)
    open_items(const __grid_constant__ Meeting meeting, const __grid_constant__ OpenJob job) {
  come_to(meeting);
  const OpenedWindow& window = job.windows[blockIdx.y];
  const bool writes_items = job.ids != nullptr && blockIdx.y == 0;
  double reference = 0;
  if (writes_items && job.heard != nullptr) {
    float least = job.heard[0].least;
    for (uint32_t r = 1; r < job.size; ++r) {
      least = fminf(least, job.heard[r].least);
    }
    reference = store::log2_portable(static_cast<double>(least));
  }
  const uint64_t rows = uint64_t{job.items} * window.length.divisor();
  for (uint64_t row = uint64_t{blockIdx.x} * kThreads + threadIdx.x; row < rows;
       row += uint64_t{gridDim.x} * kThreads) {
    const auto number = static_cast<uint32_t>(row);
    const uint32_t item = window.length.divide(number);
    const uint32_t i = window.length.remainder(number, item);
    const uint2 piece = window.pieces[item];
    window.mask[row] = i - piece.y < piece.x;  // false below its place, by wrapping
    if (i != 0) {
      continue;
    }
    window.lengths[item] = static_cast<int32_t>(piece.x);
    if (!writes_items) {
      continue;
    }
    const float probability = job.probabilities[item];
    job.item_ids[item] = job.ids[item];
    job.item_probabilities[item] = probability;
    job.weights[item] =
        job.heard == nullptr
            ? 1.0F
            : static_cast<float>(store::power_portable(probability, reference, -job.beta));
  }
}

struct DeriveJob {
  const uint2* pieces;
  const uint64_t* standings;
  std::byte* data;
  base::Divider length;
  uint32_t items;
  plan::Derived kind;
};

// A thread a row.
__global__ void __launch_bounds__(kThreads) derive_items(const __grid_constant__ DeriveJob job) {
  const uint64_t rows = uint64_t{job.items} * job.length.divisor();
  for (uint64_t row = uint64_t{blockIdx.x} * kThreads + threadIdx.x; row < rows;
       row += uint64_t{gridDim.x} * kThreads) {
    const auto number = static_cast<uint32_t>(row);
    const uint32_t item = job.length.divide(number);
    const uint2 piece = job.pieces[item];
    const uint32_t i = job.length.remainder(number, item) - piece.y;
    const bool there = i < piece.x;
    const plan::Standing standing = plan::Standing::unpack(job.standings[item]);
    if (job.kind == plan::Derived::kStepIndex) {
      reinterpret_cast<int64_t*>(job.data)[row] =
          there ? static_cast<int64_t>(standing.first + i) : 0;
    } else {
      reinterpret_cast<bool*>(job.data)[row] =
          there && plan::derived_flag(job.kind, standing, i, piece.x);
    }
  }
}

}  // namespace

bool OwnedSlots::fit(uint32_t ranks, uint64_t num_slots) {
  return ranks <= kMostGpuRanks && num_slots < uint64_t{1} << of(ranks).slot_bits;
}

OwnedSlots OwnedSlots::of(uint32_t ranks) {
  return {32 - static_cast<uint32_t>(std::bit_width(ranks - 1))};
}

DeviceParcels::Places::Places(const plan::BatchLayout& layout) {
  const uint64_t items = layout.batch_size;
  ids = part(bytes, items * sizeof(int64_t));
  probabilities = part(bytes, items * sizeof(float));
  for (const plan::BatchLayout::SharedWindow& shared : layout.windows) {
    Window window{};
    window.pieces = part(bytes, items * sizeof(uint2));
    window.standings = part(bytes, shared.derives ? items * sizeof(uint64_t) : 0);
    window.rows = part(bytes, items * shared.window.length() * sizeof(uint32_t));
    windows.push_back(window);
  }
}

uint64_t DeviceParcels::bytes(const plan::BatchLayout& layout) {
  return kInboxes * Places(layout).bytes;
}

DeviceParcels::DeviceParcels(std::shared_ptr<const plan::BatchLayout> layout,
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
  GEAR_CHECK(!layout_->packed && size_ <= kMostGpuRanks);
  std::ranges::copy(inboxes, inboxes_);
}

void DeviceParcels::write(uint64_t number, const Find& find, const store::DeviceView& view,
                          const OfferedTotals& totals, const DeviceShare& share,
                          cudaStream_t stream) {
  const base::OnDevice on(device_);
  const uint64_t items = layout_->batch_size;
  const FoundItems found{slots_.get(), probabilities_.get()};
  const FindJob finding{.tree = find.tree,
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
    job.inboxes[r] = inboxes_[r] + begin(number);
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
      const Window& places = places_.windows[first + i];
      longest = std::max(longest, shared.window.length());
      job.windows[i] = {.window = {shared.window.start, shared.window.stop,
                                   static_cast<uint32_t>(shared.window.column), shared.window.pad},
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
      find_and_write<<<blocks_for(items, kWarps), store::kSearchBlock, 0, stream>>>(finding, job);
    } else {
      const dim3 grid(blocks_for(items, kThreads >> job.lane_bits), static_cast<unsigned>(count));
      write_items<<<grid, kThreads, 0, stream>>>(job);
    }
    GEAR_CUDA_TRY(cudaGetLastError());
  }
}

void DeviceParcels::open(uint64_t number, const Meeting& meeting, const Said* heard, double beta,
                         std::byte* block, cudaStream_t stream) {
  const base::OnDevice on(device_);
  Meeting first_meets = meeting;
  const std::byte* const inbox = inboxes_[rank_] + begin(number);
  const uint64_t items = layout_->batch_size;
  const auto pieces_of = [&](size_t w) {
    return reinterpret_cast<const uint2*>(inbox + places_.windows[w].pieces);
  };
  OpenJob job{};
  job.probabilities = reinterpret_cast<const float*>(inbox + places_.probabilities);
  job.item_ids = reinterpret_cast<int64_t*>(block + layout_->ids);
  job.item_probabilities = reinterpret_cast<float*>(block + layout_->probabilities);
  job.weights = reinterpret_cast<float*>(block + layout_->weights);
  job.heard = heard;
  job.beta = beta;
  job.items = static_cast<uint32_t>(items);
  job.size = size_;
  for (size_t first = 0; first < layout_->windows.size(); first += kWindowsPerLaunch) {
    const size_t count = std::min<size_t>(kWindowsPerLaunch, layout_->windows.size() - first);
    job.ids = first == 0 ? reinterpret_cast<const int64_t*>(inbox + places_.ids) : nullptr;
    uint64_t longest = 1;
    for (size_t i = 0; i < count; ++i) {
      const plan::BatchLayout::SharedWindow& shared = layout_->windows[first + i];
      longest = std::max(longest, shared.window.length());
      job.windows[i] = {.pieces = pieces_of(first + i),
                        .lengths = reinterpret_cast<int32_t*>(block + shared.lengths),
                        .mask = reinterpret_cast<bool*>(block + shared.mask),
                        .length = base::Divider(static_cast<uint32_t>(shared.window.length()))};
    }
    const dim3 grid(blocks_for(items * longest, kThreads), static_cast<unsigned>(count));
    first_meets = meet_first(first_meets, uint64_t{grid.x} * grid.y, stream);
    open_items<<<grid, kThreads, 0, stream>>>(first_meets, job);
    first_meets = {};
    GEAR_CUDA_TRY(cudaGetLastError());
  }
  for (const plan::BatchLayout::DerivedOutput& derived : layout_->derived) {
    const plan::BatchLayout::SharedWindow& shared = layout_->windows[derived.window];
    const DeriveJob derive{.pieces = pieces_of(derived.window),
                           .standings = reinterpret_cast<const uint64_t*>(
                               inbox + places_.windows[derived.window].standings),
                           .data = block + derived.data,
                           .length = base::Divider(static_cast<uint32_t>(shared.window.length())),
                           .items = static_cast<uint32_t>(items),
                           .kind = derived.output.derived};
    derive_items<<<blocks_for(items * shared.window.length(), kThreads), kThreads, 0, stream>>>(
        derive);
    GEAR_CUDA_TRY(cudaGetLastError());
  }
}

std::vector<plan::RowList> DeviceParcels::rows(uint64_t number) const {
  const std::byte* const inbox = inboxes_[rank_] + begin(number);
  std::vector<plan::RowList> rows;
  for (size_t w = 0; w < layout_->windows.size(); ++w) {
    const uint64_t count = layout_->batch_size * layout_->windows[w].window.length();
    rows.push_back({reinterpret_cast<const uint32_t*>(inbox + places_.windows[w].rows), nullptr,
                    static_cast<uint32_t>(count)});
  }
  return rows;
}

}  // namespace gear::group
