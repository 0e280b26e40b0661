#pragma once

#include <cstdint>
#include <memory>

#include "select/law.h"
#include "store/mirror/cuda/device_index.h"

namespace gear::select {

/// Where a selection goes: device memory for one entry an item.
struct DeviceDraw {
  uint32_t* slots;       ///< of the anchors
  float* probabilities;  ///< with which each was drawn; 1 where there was no chance in it
  float* weights;        ///< importance weights; 1 unless the law has any
  /// These three, or none of them: what a plan would say of the anchors by themselves.
  int64_t* ids = nullptr;
  int32_t* lengths = nullptr;  ///< 1: the anchor's own step is there
  bool* mask = nullptr;        ///< true
};

/// What a DeviceSampler is made of.
struct DeviceSamplerParts {
  const SamplerOptions& options;
  store::Index& index;
  store::DeviceIndex& mirror;
  uint64_t most_items;  ///< of a selection
};

/// Draws on a GPU by a law, from a mirror: the same steps, probabilities and weights, to the bit,
/// as the CPU's Sampler of the same options after the same calls.
///
///   mirror.sync();                                 // under the shard's lock, with the two below
///   items = sampler.advance(batch_size);           // host: what the next selection will hold
///   if (items > 0) sampler.launch(items, out);     // device: makes it, on the mirror's stream
///
/// What changes from one launch to the next (the number of draws made, beta) lives in device memory
/// where capturable(): launch() may then be captured into a CUDA graph, and replaying the graph
/// after an advance() of the same number of items is the same as calling it.
class DeviceSampler {
 public:
  /// For what draws_on_device() says; under the shard's lock, after Shard::settle(). Throws as Law,
  /// OutOfMemory.
  static std::unique_ptr<DeviceSampler> make(const DeviceSamplerParts& parts);
  virtual ~DeviceSampler() = default;
  DeviceSampler(const DeviceSampler&) = delete;
  DeviceSampler& operator=(const DeviceSampler&) = delete;

  Law& law() { return law_; }
  const Law& law() const { return law_; }

  /// Accounts for the next selection of up to `count` items, in the index's counters too, and
  /// returns how many it will hold; 0 at the end of an epoch, whose successor starts with the next
  /// call. Throws InvalidArgument as Sampler::select; where every priority has become 0, which
  /// the GPU alone knows, once it has made a selection of nothing. Something may be drawn: the
  /// caller has seen to that.
  uint64_t advance(uint64_t count);
  /// Enqueues the selection that the last advance() accounted for. One or two launches (kTopK: 8
  /// and a sort). No allocation, no waiting.
  virtual void launch(uint64_t items, const DeviceDraw& out) = 0;
  /// Whether launch() has the same effect when captured and replayed.
  virtual bool capturable() const = 0;

 protected:
  explicit DeviceSampler(const DeviceSamplerParts& parts);

  store::DeviceIndex& mirror() const { return mirror_; }

 private:
  /// The law's position was set anew.
  virtual void restored() {}
  /// Whether some launch found that nothing weighs anything, as the host sees it by now: what it
  /// drew are steps of probability and weight 0. Launches before a call that says so count no more.
  virtual bool found_nothing() { return false; }

  Law law_;
  store::Index& index_;
  store::DeviceIndex& mirror_;
  uint64_t most_items_;
  std::shared_ptr<store::Drawable> steps_;  // null: episodes
  uint64_t seen_ = 0;                       // changes of the law
};

/// Whether laws of these options draw on the GPU. The others do on the host: Fifo, Lifo, Sequential
/// in order, episodes under Weighted and TopK, and all over an index with max_times_sampled.
bool draws_on_device(const SamplerOptions& options, const store::Index& index);

}  // namespace gear::select
