#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "group/cuda/device_meeting.h"
#include "group/cuda/parcel_inbox.h"
#include "plan/batch.h"
#include "plan/cuda/device_plan.h"

namespace gear::group {

/// The consumer's part of the parcels: see ParcelInbox.
class ParcelOpener {
 public:
  /// `inboxes`: this rank's, in memory of `device`; `size`: ranks that write there.
  ParcelOpener(std::shared_ptr<const plan::BatchLayout> layout, uint32_t size,
               const std::byte* inboxes, int device);

  /// Enqueues the opening of a batch, which comes to the meeting first: fills the block's header.
  /// `heard`: what is said there; null: no importance weights, all are 1.
  void open(uint64_t number, const Meeting& meeting, const Said* heard, double beta,
            std::byte* block, cudaStream_t stream);

  /// Of the batch of that number, in this rank's inbox: see OwnedSlots.
  std::vector<plan::RowList> rows(uint64_t number) const;

 private:
  std::shared_ptr<const plan::BatchLayout> layout_;
  uint32_t size_;
  const std::byte* inboxes_;
  int device_;
  ParcelInbox places_;
};

}  // namespace gear::group
