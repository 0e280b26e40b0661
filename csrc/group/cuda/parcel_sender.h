#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "group/cuda/device_shares.h"
#include "group/cuda/parcel_inbox.h"
#include "plan/batch.h"
#include "select/cuda/device_sampler.h"
#include "store/mirror/device_view.h"
#include "store/page_layout.h"

namespace gear::group {

/// The owner's part of the parcels: see ParcelInbox.
class ParcelSender {
 public:
  /// `inboxes`: by rank, as kernels of `device` reach them, of ParcelInbox::all_bytes(); zeroed.
  /// Throws OutOfMemory: 8 bytes a draw of all ranks.
  ParcelSender(std::shared_ptr<const plan::BatchLayout> layout, const store::PageLayout& pages,
               uint32_t rank, Locality locality, std::span<std::byte* const> inboxes, int device);

  /// Where draws are looked up.
  struct Find {
    store::DeviceTree tree;
    uint64_t* least_of_all;  ///< where importance weights need it: see DeviceWeights
    store::StepWords holes;
    bool by_page;  ///< the tree counts what a page offers, else it weighs slots
    store::Unit unit;
  };
  /// Enqueues: finds the items of this rank's draws and writes them to their consumers.
  void write(uint64_t number, const Find& find, const store::DeviceView& view,
             const OfferedTotals& totals, const DeviceShare& share, cudaStream_t stream);

 private:
  std::shared_ptr<const plan::BatchLayout> layout_;
  uint64_t page_steps_;
  uint32_t rank_;
  uint32_t size_;
  Locality locality_;
  int device_;
  ParcelInbox places_;
  std::byte* inboxes_[kMostGpuRanks] = {};
  base::DeviceArray<uint32_t> slots_;
  base::DeviceArray<float> probabilities_;
};

}  // namespace gear::group
