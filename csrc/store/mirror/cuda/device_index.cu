#include "store/mirror/cuda/device_index.h"

#include <algorithm>

#include "base/errors.h"
#include "store/index/fixed_point.h"
#include "store/mirror/cuda/device_tree.cuh"

namespace gear::store {
namespace {

constexpr uint64_t kSettleSlots = 1 << 20;  // of one copy
constexpr unsigned kBlock = 256;
constexpr uint64_t kMaxBlocks = 4096;

unsigned blocks_for(uint64_t count) {
  return static_cast<unsigned>(std::min(kMaxBlocks, (count + kBlock - 1) / kBlock));
}

__global__ void fill(float* values, uint64_t count, float value) {
  for (uint64_t i = uint64_t{blockIdx.x} * kBlock + threadIdx.x; i < count;
       i += uint64_t{gridDim.x} * kBlock) {
    values[i] = value;
  }
}

// Starts or clears the scalars; a negative largest priority leaves that as it is.
__global__ void set_scalars(DeviceScalars* scalars, float largest) {
  if (largest >= 0) {
    scalars->max_priority[0] = scalars->max_priority[1] = largest;
  }
  scalars->stale_updates = 0;
  scalars->saturated_weights = 0;
}

__global__ void weigh(const float* priorities, uint64_t count, double alpha, uint64_t limit,
                      uint64_t* leaves, DeviceScalars* scalars) {
  for (uint64_t i = uint64_t{blockIdx.x} * kBlock + threadIdx.x; i < count;
       i += uint64_t{gridDim.x} * kBlock) {
    const float priority = priorities[i];
    bool saturated = false;
    leaves[i] = signbit(priority) ? 0 : fixed_weight(priority, alpha, limit, saturated);
    if (saturated) {
      atomicAdd(&scalars->saturated_weights, 1ULL);
    }
  }
}

}  // namespace

DeviceIndex::DeviceIndex(Index& index, int device, uint64_t lookahead, const DeviceIndex* beside)
    : index_(index),
      drawable_(index.steps(lookahead)),
      stream_(beside != nullptr ? beside->stream_ : std::make_shared<base::Stream>(device)),
      log_(index.options().num_pages, index.options().page_steps),
      pages_(index.options().num_pages, device),
      episodes_(index.options().num_pages, device),
      anchors_(index.options().num_pages, *stream_, device),
      heads_(index.options().num_pages, *stream_, device),
      deltas_(device),
      marked_(base::Event::on(device)) {
  const base::OnDevice current(device);
  static_assert(kNone == 0xffffffff, "all bits set: a page that belongs to no episode");
  GEAR_CUDA_TRY(cudaMemsetAsync(pages_.get(), 0xff, pages_.bytes(), *stream_));
  view_ = {pages_.get(),
           episodes_.get(),
           nullptr,
           anchors_.tree(),
           heads_.tree(),
           index.options().num_pages,
           index.options().page_steps,
           index.options().owner};
  log_.everything(index.state().pages, index.state().episodes.size());
  drawable_->attach(log_);
}

DeviceIndex::~DeviceIndex() {
  drawable_->detach(log_);
  stream_->drain();
}

void DeviceIndex::drop_unused_trees() {
  std::erase_if(weight_trees_, [](const auto& weights) { return weights.use_count() == 1; });
}

DeviceTables DeviceIndex::tables() {
  drop_unused_trees();
  DeviceTables tables{};
  tables.pages = pages_.get();
  tables.episodes = episodes_.get();
  tables.priorities = priorities_.get();
  tables.episode_weights = episode_weights_.get();
  tables.scalars = scalars_.get();
  tables.anchors = anchors_.tree();
  tables.heads = heads_.tree();
  tables.num_slots = index_.num_slots();
  tables.page_steps = index_.options().page_steps;
  tables.owner = index_.options().owner;
  tables.largest = largest_;
  tables.weight_limit = weight_limit(index_.num_slots());
  for (const auto& weights : weight_trees_) {
    tables.weights[tables.num_weights++] = {weights->tree.tree(), weights->alpha};
  }
  return tables;
}

void DeviceIndex::sync() {
  if (rows_ != nullptr) {
    rows_->flush();
  }
  if (log_.empty()) {
    return;
  }
  const base::OnDevice current(device());
  deltas_.send(index_, *drawable_, log_, tables(), *stream_);
  log_.clear();
  if (holds_priorities()) {
    largest_ = 1 - largest_;
  }
  counted_ = counted_ || !weight_trees_.empty();
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
  updates_.emplace(index_.options().owner, slots, episodes_.size(), *stream_);
  fill<<<blocks_for(slots), kBlock, 0, *stream_>>>(priorities.get(), slots, -0.0F);
  GEAR_CUDA_TRY(cudaGetLastError());
  set_scalars<<<1, 1, 0, *stream_>>>(scalars.get(), index_.state().max_priority);
  GEAR_CUDA_TRY(cudaGetLastError());
  priorities_ = std::move(priorities);
  episode_weights_ = std::move(episode_weights);
  scalars_ = std::move(scalars);
  view_.priorities = priorities_.get();
  log_.follow_priorities();
  log_.everything(index_.state().pages, index_.state().episodes.size());
}

std::shared_ptr<const DeviceTree> DeviceIndex::weights(double alpha) {
  const auto tree_of = [](const std::shared_ptr<WeightTree>& weights) {
    return std::shared_ptr<const DeviceTree>(weights, &weights->tree.tree());
  };
  for (const auto& weights : weight_trees_) {
    if (weights->alpha == alpha) {
      return tree_of(weights);
    }
  }
  drop_unused_trees();
  if (weight_trees_.size() == kMaxWeightTrees) {
    throw base::InvalidArgument(base::cat("[select] alpha ", alpha, " would be the ",
                                          kMaxWeightTrees + 1, "th in use on GPU ", device(), ": ",
                                          kMaxWeightTrees, " are allowed; drop a loader first"));
  }
  require_priorities();
  sync();
  const base::OnDevice current(device());
  const uint64_t slots = index_.num_slots();
  const auto made =
      std::make_shared<WeightTree>(WeightTree{alpha, TreeMemory(slots, *stream_, device())});
  weigh<<<blocks_for(slots), kBlock, 0, *stream_>>>(priorities_.get(), slots, alpha,
                                                    weight_limit(slots),
                                                    made->tree.tree().levels[0], scalars_.get());
  GEAR_CUDA_TRY(cudaGetLastError());
  made->tree.sum_levels(*stream_);
  weight_trees_.push_back(made);
  counted_ = true;
  return tree_of(made);
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
  if (!ahead_ && !counted_) {
    return;
  }
  sync();
  const base::OnDevice current(device());
  std::vector<double> weights(ahead_ ? index_.state().episodes.size() : 0);
  if (ahead_) {
    take_priorities();
    GEAR_CUDA_TRY(cudaMemcpyAsync(weights.data(), episode_weights_.get(),
                                  weights.size() * sizeof(double), cudaMemcpyDeviceToHost,
                                  *stream_));
  }
  DeviceScalars scalars{};
  GEAR_CUDA_TRY(
      cudaMemcpyAsync(&scalars, scalars_.get(), sizeof(scalars), cudaMemcpyDeviceToHost, *stream_));
  stream_->synchronize();
  index_.count_saturated(scalars.saturated_weights);
  if (ahead_) {
    index_.settle(weights, scalars.max_priority[largest_], scalars.stale_updates);
  }
  settled_elsewhere();
}

void DeviceIndex::mark() {
  const base::OnDevice current(device());
  marked_.record(*stream_);
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
                                  cudaMemcpyDeviceToHost, *stream_));
    copied[turn].record(*stream_);
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
  set_scalars<<<1, 1, 0, *stream_>>>(scalars_.get(), -1.0F);
  GEAR_CUDA_TRY(cudaGetLastError());
  ahead_ = counted_ = false;
}

void DeviceIndex::start_over() {
  settled_elsewhere();
  log_.follow_priorities();
  log_.everything(index_.state().pages, index_.state().episodes.size());
}

std::shared_ptr<Mirror> make_mirror(Index& index, int device, uint64_t lookahead,
                                    const Mirror* beside) {
  return std::make_shared<DeviceIndex>(index, device < 0 ? base::current_device() : device,
                                       lookahead, static_cast<const DeviceIndex*>(beside));
}

}  // namespace gear::store
