#include "group/cuda/parcel_opener.h"

#include <algorithm>

#include "base/cuda/following.cuh"
#include "base/numbers/divider.h"
#include "group/cuda/device_meeting.cuh"
#include "group/cuda/parcel_launch.h"
#include "plan/derived.h"
#include "store/drawable/fixed_point.h"

namespace gear::group {
namespace {

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
__global__ void __launch_bounds__(kParcelThreads)
    open_items(const __grid_constant__ Meeting meeting, const __grid_constant__ OpenJob job) {
  base::follow();
  come_to(meeting);
  base::let_next_in();
  const OpenedWindow& window = job.windows[blockIdx.y];
  const bool writes_items = job.ids != nullptr && blockIdx.y == 0;
  double offset = 0;
  if (writes_items && job.heard != nullptr) {
    float least = job.heard[0].least;
    for (uint32_t r = 1; r < job.size; ++r) {
      least = fminf(least, job.heard[r].least);
    }
    offset = job.beta * store::log2_portable(static_cast<double>(least));
  }
  const uint64_t rows = uint64_t{job.items} * window.length.divisor();
  for (uint64_t row = uint64_t{blockIdx.x} * kParcelThreads + threadIdx.x; row < rows;
       row += uint64_t{gridDim.x} * kParcelThreads) {
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
            : static_cast<float>(store::power_portable(probability, -job.beta, offset));
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
__global__ void __launch_bounds__(kParcelThreads)
    derive_items(const __grid_constant__ DeriveJob job) {
  base::follow();
  base::let_next_in();
  const uint64_t rows = uint64_t{job.items} * job.length.divisor();
  for (uint64_t row = uint64_t{blockIdx.x} * kParcelThreads + threadIdx.x; row < rows;
       row += uint64_t{gridDim.x} * kParcelThreads) {
    const auto number = static_cast<uint32_t>(row);
    const uint32_t item = job.length.divide(number);
    const uint2 piece = job.pieces[item];
    const uint32_t i = job.length.remainder(number, item) - piece.y;
    const plan::StandingFacts standing = plan::StandingFacts::unpack(job.standings[item]);
    plan::put_derived(job.kind, standing, i, piece.x, job.data, row);
  }
}

}  // namespace

ParcelOpener::ParcelOpener(std::shared_ptr<const plan::BatchLayout> layout, uint32_t size,
                           const std::byte* inboxes, int device)
    : layout_(std::move(layout)),
      size_(size),
      inboxes_(inboxes),
      device_(device),
      places_(*layout_) {}

void ParcelOpener::open(uint64_t number, const Meeting& meeting, const Said* heard, double beta,
                        std::byte* block, cudaStream_t stream) {
  const base::OnDevice on(device_);
  Meeting first_meets = meeting;
  const std::byte* const inbox = inboxes_ + places_.begin(number);
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
    const dim3 grid(parcel_blocks(items * longest, kParcelThreads), static_cast<unsigned>(count));
    first_meets = meet_first(first_meets, uint64_t{grid.x} * grid.y, stream);
    base::launch_following<open_items>(grid, kParcelThreads, stream, first_meets, job);
    first_meets = {};
  }
  for (const plan::BatchLayout::DerivedOutput& derived : layout_->derived) {
    const plan::BatchLayout::SharedWindow& shared = layout_->windows[derived.window];
    const DeriveJob derive{.pieces = pieces_of(derived.window),
                           .standings = reinterpret_cast<const uint64_t*>(
                               inbox + places_.windows[derived.window].standings),
                           .data = block + derived.data,
                           .length = base::Divider(static_cast<uint32_t>(shared.window.length())),
                           .items = static_cast<uint32_t>(items),
                           .kind = derived.kind};
    base::launch_following<derive_items>(
        parcel_blocks(items * shared.window.length(), kParcelThreads), kParcelThreads, stream,
        derive);
  }
}

std::vector<plan::RowList> ParcelOpener::rows(uint64_t number) const {
  const std::byte* const inbox = inboxes_ + places_.begin(number);
  std::vector<plan::RowList> rows;
  for (size_t w = 0; w < layout_->windows.size(); ++w) {
    const uint64_t count = layout_->batch_size * layout_->windows[w].window.length();
    rows.push_back({reinterpret_cast<const uint32_t*>(inbox + places_.windows[w].rows), nullptr,
                    static_cast<uint32_t>(count)});
  }
  return rows;
}

}  // namespace gear::group
