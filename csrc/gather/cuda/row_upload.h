#pragma once

#include <span>
#include <vector>

#include "base/cuda/staging.h"
#include "base/threads/thread_pool.h"
#include "plan/cuda/device_plan.h"
#include "plan/plan.h"

namespace gear::gather {

/// The rows of plans, written out one by one in pinned memory and sent to a GPU in one copy.
///
///   reset ── add(plan) ── add(plan) ── upload ── lists(0), lists(1)
class RowUpload {
 public:
  RowUpload(uint32_t page_steps, size_t num_windows, int device)
      : page_steps_(page_steps),
        num_windows_(num_windows),
        host_(base::GrowingBuffer::Place::kPinned, device),
        device_memory_(base::GrowingBuffer::Place::kDevice, device) {}

  void reset();
  /// Writes out a plan; returns its number. What was uploaded last must have arrived.
  size_t add(const plan::Plan& plan, base::ThreadPool& pool);
  void upload(cudaStream_t stream);
  /// By window; valid behind upload() on its stream, until reset().
  std::span<const plan::RowList> lists(size_t number) const;

 private:
  struct Listed {
    uint64_t begin;  ///< of the slots, in entries; the targets lie behind them
    uint32_t count;
  };

  uint32_t* room(uint64_t entries);

  uint32_t page_steps_;
  size_t num_windows_;
  base::GrowingBuffer host_;
  base::GrowingBuffer device_memory_;
  uint64_t used_ = 0;           ///< entries
  std::vector<Listed> listed_;  ///< window by window, plan by plan
  std::vector<plan::RowList> lists_;
};

}  // namespace gear::gather
