#pragma once

#include <memory>

#include "select/sampler.h"
#include "store/mirror/cuda/device_index.h"

namespace gear::select {

/// Where a selection goes: device memory for one entry an item.
struct DeviceDraw {
  uint32_t* slots;       ///< of the anchors
  float* probabilities;  ///< with which each was drawn; 1 where there was no chance in it
  float* weights;        ///< importance weights; 1 unless the sampler has any
  /// These three, or none of them: what a plan would say of the anchors by themselves.
  int64_t* ids = nullptr;
  int32_t* lengths = nullptr;  ///< 1: the anchor's own step is there
  bool* mask = nullptr;        ///< true
};

/// A policy whose selections are made on the GPU, from a mirror: the same steps, probabilities and
/// weights, to the bit, as the CPU's Sampler of the same options after the same calls.
///
///   mirror.sync();                                 // under the shard's lock, with the two below
///   items = sampler.advance(batch_size);           // host: what the next selection will hold
///   if (items > 0) sampler.launch(items, out);     // device: makes it, on the mirror's stream
///
/// What changes from one launch to the next (the number of draws made, beta) lives in device memory
/// where capturable(): launch() may then be captured into a CUDA graph, and replaying the graph
/// after an advance() of the same number of items is the same as calling it.
class DeviceSampler : public Law {
 public:
  /// Accounts for the next selection of up to `count` items, in the index's counters too, and
  /// returns how many it will hold; 0 at the end of an epoch, whose successor starts with the next
  /// call. Throws InvalidArgument as Sampler::select. Something may be drawn: the caller has seen
  /// to that.
  virtual uint64_t advance(uint64_t count) = 0;

  /// Enqueues the selection that the last advance() accounted for: at most the most_items that the
  /// sampler was made for. One or two launches (kTopK: 8 and a sort). No allocation, no waiting.
  virtual void launch(uint64_t items, const DeviceDraw& out) = 0;

  /// Whether launch() has the same effect when captured and replayed.
  virtual bool capturable() const = 0;
};

/// The sampler on the device for these options, or null for what is selected on the host: Fifo,
/// Lifo, Sequential in order, episodes under Weighted and TopK, and any policy over an index with
/// max_times_sampled. Throws InvalidArgument as make_sampler, OutOfMemory.
/// Under the shard's lock, after Shard::settle().
std::unique_ptr<DeviceSampler> make_device_sampler(const SamplerOptions& options,
                                                   store::Index& index, store::DeviceIndex& mirror,
                                                   uint64_t most_items);

/// One maker per policy.
std::unique_ptr<DeviceSampler> make_device_uniform(const SamplerOptions& options,
                                                   store::Index& index, store::DeviceIndex& mirror);
std::unique_ptr<DeviceSampler> make_device_weighted(const SamplerOptions& options,
                                                    store::Index& index,
                                                    store::DeviceIndex& mirror);
std::unique_ptr<DeviceSampler> make_device_sequential(const SamplerOptions& options,
                                                      store::Index& index,
                                                      store::DeviceIndex& mirror);
std::unique_ptr<DeviceSampler> make_device_topk(const SamplerOptions& options, store::Index& index,
                                                store::DeviceIndex& mirror, uint64_t most_items);

}  // namespace gear::select
