#include "store/mirror/cuda/device_index.h"

#include <algorithm>
#include <utility>

#include "base/errors.h"
#include "base/numbers/divider.h"
#include "store/mirror/cuda/device_scale.cuh"
#include "store/mirror/cuda/step_words.cuh"

namespace gear::store {
namespace {

constexpr uint64_t kSettleSlots = 1 << 20;  // of one copy
constexpr unsigned kBlock = 256;
constexpr unsigned kOneBlock = 512;  // threads of it: see weigh_all()
constexpr uint64_t kMaxBlocks = 4096;

unsigned blocks_for(uint64_t count) {
  return static_cast<unsigned>(std::min(kMaxBlocks, (count + kBlock - 1) / kBlock));
}

// Starts or clears the scalars; a negative largest priority leaves that as it is.
__global__ void set_scalars(DeviceScalars* scalars, float largest) {
  if (largest >= 0) {
    scalars->max_priority[0] = scalars->max_priority[1] = scalars->followed = largest;
  }
  scalars->max_weight = 0;
  scalars->stale_updates = 0;
  scalars->saturated_weights = 0;
}

// The largest priority is that of the index too, and the scales are those of the largest.
__global__ void __launch_bounds__(kOneBlock)
    follow_index(const __grid_constant__ DeviceTables tables, float index_largest) {
  float& own = tables.scalars->max_priority[tables.largest];
  const float largest = fmaxf(own, index_largest);
  if (scales_may_move(tables, largest)) {
    follow_largest(tables, largest);
  }
  if (threadIdx.x == 0) {
    own = largest;
  }
}

__global__ void set_scale(const float* largest, double alpha, uint32_t bits, WeightScale* scale) {
  *scale = weight_scale(*largest, alpha, bits);
}

__global__ void weigh(const float* priorities, uint64_t count, base::Divider page_steps,
                      StepWords steps, const WeightScale* scale, uint64_t* leaves,
                      DeviceScalars* scalars) {
  for (uint64_t i = uint64_t{blockIdx.x} * kBlock + threadIdx.x; i < count;
       i += uint64_t{gridDim.x} * kBlock) {
    const auto slot = static_cast<uint32_t>(i);
    const uint32_t page = page_steps.divide(slot);
    const uint32_t row = page_steps.remainder(slot, page);
    bool saturated = false;
    leaves[i] = has_step(steps.words, steps.per_page, page, row)
                    ? fixed_weight(priorities[i], *scale, saturated)
                    : 0;
    if (saturated) {
      atomicAdd(&scalars->saturated_weights, 1ULL);
    }
  }
}

}  // namespace

DeviceIndex::DeviceIndex(Index& index, int device, RowSink* rows)
    : index_(index),
      rows_(rows != nullptr && rows->stream().device() == device ? rows : nullptr),
      own_stream_(rows_ == nullptr ? base::Stream(device) : base::Stream()),
      stream_(rows_ == nullptr ? own_stream_ : rows_->stream()),
      pages_(index.options().num_pages, device),
      episodes_(index.options().num_pages, device),
      heads_(index.options().num_pages, stream_, device),
      deltas_(index, device),
      marked_(base::Event::on(device)) {
  const base::OnDevice current(device);
  static_assert(kNone == 0xffffffff, "all bits set: a page that belongs to no episode");
  GEAR_CUDA_TRY(cudaMemsetAsync(pages_.get(), 0xff, pages_.bytes(), stream_));
  view_ = {pages_.get(),         episodes_.get(),           nullptr,
           heads_.tree(),        index.options().num_pages, index.options().page_steps,
           index.options().owner};
}

DeviceIndex::~DeviceIndex() { stream_.drain(); }

void DeviceIndex::drop_unused() {
  std::erase_if(weight_trees_, [](const auto& weights) { return weights.use_count() == 1; });
  std::erase_if(drawables_, [](const auto& steps) { return steps.use_count() == 1; });
}

std::shared_ptr<const DeviceDrawable> DeviceIndex::steps(uint64_t lookahead,
                                                         const std::shared_ptr<const Mask>& mask) {
  const std::shared_ptr<const Drawable> steps = index_.steps(lookahead, mask);
  for (const auto& there : drawables_) {
    if (there->steps() == steps) {
      return there;
    }
  }
  drop_unused();
  if (drawables_.size() == kMaxDrawables) {
    throw base::InvalidArgument(base::cat("[sampler] outputs that look ", lookahead,
                                          " steps ahead would be the ", kMaxDrawables + 1,
                                          "th different look-ahead in use on GPU ", device(), ": ",
                                          kMaxDrawables, " are allowed; drop a loader first"));
  }
  drawables_.push_back(std::make_shared<DeviceDrawable>(steps, index_.options(), stream_));
  return drawables_.back();
}

DeviceTables DeviceIndex::tables() {
  drop_unused();
  DeviceTables tables{};
  tables.pages = pages_.get();
  tables.episodes = episodes_.get();
  tables.priorities = priorities_.get();
  tables.episode_weights = episode_weights_.get();
  tables.scalars = scalars_.get();
  tables.heads = heads_.tree();
  tables.num_slots = index_.num_slots();
  tables.page_steps = index_.options().page_steps;
  tables.largest = largest_;
  tables.words_per_page = static_cast<uint32_t>(StepBits::words_of(index_.options().page_steps));
  for (const auto& steps : drawables_) {
    tables.steps[tables.num_steps++] = {steps->words_to_change(), steps->counts()};
  }
  for (const auto& weights : weight_trees_) {
    const auto of = std::ranges::find(drawables_, weights->steps);
    tables.weights[tables.num_weights++] = {weights->there.tree, weights->scale.get(),
                                            weights->there.least,
                                            static_cast<int>(of - drawables_.begin())};
  }
  return tables;
}

void DeviceIndex::sync() {
  if (rows_ != nullptr) {
    rows_->flush();
  }
  const float largest = index_.state().max_priority;
  if (deltas_.up_to_date()) {
    if (largest > told_) {  // by another rank
      follow();
    }
    return;
  }
  const base::OnDevice current(device());
  const DeviceTables tables = this->tables();
  std::vector<std::shared_ptr<const Drawable>> steps;
  for (const auto& there : drawables_) {
    steps.push_back(there->steps());
  }
  deltas_.send(steps, largest, tables, stream_);
  told_ = largest;
  if (holds_priorities()) {
    largest_ = 1 - largest_;
  }
  has_news_ = has_news_ || !weight_trees_.empty();
}

void DeviceIndex::follow() {
  told_ = index_.state().max_priority;
  if (!holds_priorities()) {
    return;
  }
  const base::OnDevice current(device());
  follow_index<<<1, kOneBlock, 0, stream_>>>(tables(), told_);
  GEAR_CUDA_TRY(cudaGetLastError());
}

void DeviceIndex::require_priorities() {
  if (holds_priorities()) {
    return;
  }
  const base::OnDevice current(device());
  const uint64_t slots = index_.num_slots();
  base::DeviceArray<float> priorities(slots, device());
  base::DeviceArray<double> episode_weights(episodes_.size(), device());
  base::DeviceArray<DeviceScalars> scalars(1, device());
  updates_.emplace(index_.options().owner, slots, episodes_.size(), stream_);
  GEAR_CUDA_TRY(cudaMemsetAsync(priorities.get(), 0, priorities.bytes(), stream_));
  GEAR_CUDA_TRY(cudaMemsetAsync(scalars.get(), 0, scalars.bytes(), stream_));
  told_ = index_.state().max_priority;
  set_scalars<<<1, 1, 0, stream_>>>(scalars.get(), told_);
  GEAR_CUDA_TRY(cudaGetLastError());
  priorities_ = std::move(priorities);
  episode_weights_ = std::move(episode_weights);
  scalars_ = std::move(scalars);
  view_.priorities = priorities_.get();
  deltas_.follow_priorities();
}

std::shared_ptr<const DeviceWeights> DeviceIndex::weights(
    std::shared_ptr<const DeviceDrawable> steps, double alpha, bool with_least) {
  const auto view_of = [&](const std::shared_ptr<WeightTree>& weights) {
    if (with_least && weights->there.least == nullptr) {
      const base::OnDevice current(device());
      weights->least = weights->memory.least_levels(stream_);
      weights->there.least = weights->least.get();
    }
    return std::shared_ptr<const DeviceWeights>(weights, &weights->there);
  };
  for (const auto& weights : weight_trees_) {
    if (weights->steps == steps && weights->alpha == alpha) {
      return view_of(weights);
    }
  }
  drop_unused();
  if (weight_trees_.size() == kMaxWeightTrees) {
    throw base::InvalidArgument(base::cat("[sampler] alpha ", alpha, " would be the ",
                                          kMaxWeightTrees + 1, "th in use on GPU ", device(), ": ",
                                          kMaxWeightTrees, " are allowed; drop a loader first"));
  }
  require_priorities();
  sync();
  const base::OnDevice current(device());
  const uint64_t slots = index_.num_slots();
  const StepWords words = steps->words();
  const auto made =
      std::make_shared<WeightTree>(WeightTree{std::move(steps),
                                              alpha,
                                              TreeMemory(slots, stream_, device()),
                                              base::DeviceArray<WeightScale>(1, device()),
                                              {},
                                              {}});
  made->there = {made->memory.tree(), made->scale.get(), nullptr};
  set_scale<<<1, 1, 0, stream_>>>(scalars_.get()->max_priority + largest_, alpha,
                                  weight_bits(slots), made->scale.get());
  GEAR_CUDA_TRY(cudaGetLastError());
  weigh<<<blocks_for(slots), kBlock, 0, stream_>>>(
      priorities_.get(), slots, base::Divider(static_cast<uint32_t>(index_.options().page_steps)),
      words, made->scale.get(), made->there.tree.levels[0], scalars_.get());
  GEAR_CUDA_TRY(cudaGetLastError());
  made->memory.sum_levels(stream_);
  weight_trees_.push_back(made);
  has_news_ = true;
  return view_of(made);
}

float* DeviceIndex::largest_priority() {
  has_news_ = true;
  return scalars_.get()->max_priority + largest_;
}

void DeviceIndex::update(const int64_t* ids, const float* priorities, uint64_t count,
                         bool on_device, uintptr_t stream) {
  GEAR_CHECK(holds_priorities());
  sync();
  const base::OnDevice current(device());
  updates_->enqueue(ids, priorities, count, on_device, reinterpret_cast<cudaStream_t>(stream),
                    tables());
  ahead_ = true;
}

void DeviceIndex::apply(const UpdateSegments& updates, const base::Stream& made_on) {
  GEAR_CHECK(holds_priorities());
  sync();
  const base::OnDevice current(device());
  updates_->apply(updates, made_on, tables());
  ahead_ = true;
}

void DeviceIndex::raise_failed_update() {
  if (updates_) {
    updates_->raise_failed();
  }
}

void DeviceIndex::settle() {
  if (!unsettled()) {
    return;
  }
  sync();
  follow();  // with the index, which is told the largest: both weigh alike from here on
  const base::OnDevice current(device());
  std::vector<double> weights(ahead_ ? index_.state().episodes.size() : 0);
  if (ahead_) {
    take_priorities();
    GEAR_CUDA_TRY(cudaMemcpyAsync(weights.data(), episode_weights_.get(),
                                  weights.size() * sizeof(double), cudaMemcpyDeviceToHost,
                                  stream_));
  }
  DeviceScalars scalars{};
  GEAR_CUDA_TRY(
      cudaMemcpyAsync(&scalars, scalars_.get(), sizeof(scalars), cudaMemcpyDeviceToHost, stream_));
  stream_.synchronize();
  index_.count_saturated(scalars.saturated_weights);
  if (ahead_) {
    index_.settle(weights, scalars.max_priority[largest_], scalars.max_weight,
                  scalars.stale_updates);
  } else {
    index_.raise_largest(scalars.max_priority[largest_], 0);
  }
  settled_elsewhere();
}

void DeviceIndex::mark() {
  const base::OnDevice current(device());
  marked_.record(stream_);
}

void DeviceIndex::take_priorities() {
  const uint64_t slots = index_.num_slots();
  const uint64_t part = std::min(slots, kSettleSlots);
  if (settling_.size() == 0) {
    settling_ = base::PinnedArray<float>(2 * part, device());
  }
  // One part is copied while the index takes the one before.
  base::Event copied[2];
  const auto copy = [&](uint64_t first, uint64_t turn) {
    if (first >= slots) {
      return;
    }
    GEAR_CUDA_TRY(cudaMemcpyAsync(settling_.get() + turn * part, priorities_.get() + first,
                                  std::min(part, slots - first) * sizeof(float),
                                  cudaMemcpyDeviceToHost, stream_));
    copied[turn].record(stream_);
  };
  copy(0, 0);
  uint64_t turn = 0;
  for (uint64_t first = 0; first < slots; first += part, turn = 1 - turn) {
    copy(first + part, 1 - turn);
    copied[turn].synchronize();
    index_.take_priorities(first, {settling_.get() + turn * part, std::min(part, slots - first)});
  }
}

void DeviceIndex::settled_elsewhere() {
  const base::OnDevice current(device());
  set_scalars<<<1, 1, 0, stream_>>>(scalars_.get(), -1.0F);
  GEAR_CUDA_TRY(cudaGetLastError());
  ahead_ = has_news_ = false;
}

void DeviceIndex::start_over() {
  settled_elsewhere();
  deltas_.follow_priorities();
}

std::shared_ptr<Mirror> make_mirror(Index& index, int device, RowSink* rows) {
  return std::make_shared<DeviceIndex>(index, device, rows);
}

}  // namespace gear::store
