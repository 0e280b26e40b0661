#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "deliver/cuda/device_block.h"
#include "deliver/stage.h"

namespace gear::deliver {

/// Sends gathered batches from pinned memory to a GPU: one copy each, on a stream of its own. A
/// pinned block is given back when its copy is done; more than `depth` copies behind, send() waits.
class DeviceStage final : public Stage {
 public:
  DeviceStage(std::shared_ptr<const plan::BatchLayout> layout, size_t depth, int device);
  /// Waits for the copies in flight.
  ~DeviceStage() override;

  int device() const override { return device_; }
  void send(plan::Batch& batch) override;

 private:
  void copy(const plan::Batch& batch, uint64_t begin, uint64_t end, std::byte* target);
  void give_back();

  std::shared_ptr<const plan::BatchLayout> layout_;
  size_t depth_;
  int device_;
  std::mutex mutex_;  ///< of what follows
  base::Stream stream_;
  std::shared_ptr<DeviceBlockPool> blocks_;
  /// What is copied, and until when; in the order of the stream.
  std::deque<std::pair<std::shared_ptr<std::byte>, base::Event>> copies_;
  std::vector<base::Event> idle_;
};

}  // namespace gear::deliver
