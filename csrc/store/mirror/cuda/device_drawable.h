#pragma once

#include <memory>

#include "base/cuda/cuda.h"
#include "store/drawable/drawable.h"
#include "store/mirror/cuda/device_tree.h"

namespace gear::store {

/// The steps of one store::Drawable, as a GPU has them: the same bits, and the same counts. Kept up
/// to date by the DeviceIndex that made it, for as long as somebody holds it.
/// Memory: as store::StepBits and a tree by page.
class DeviceDrawable {
 public:
  /// As `steps` is, as of `stream`. Throws OutOfMemory.
  DeviceDrawable(std::shared_ptr<const Drawable> steps, const IndexOptions& options,
                 const base::Stream& stream);

  const std::shared_ptr<const Drawable>& steps() const { return steps_; }
  /// By page.
  const DeviceTree& counts() const { return counts_.tree(); }
  /// Their bits, whatever they are.
  StepWords words() const { return {words_.get(), per_page_}; }
  uint64_t* words_to_change() const { return words_.get(); }
  /// For who has a step's place among those of its page.
  StepWords holes() const { return {steps_->mask() ? words_.get() : nullptr, per_page_}; }

 private:
  std::shared_ptr<const Drawable> steps_;
  uint32_t per_page_;
  base::DeviceArray<uint64_t> words_;
  TreeMemory counts_;
};

}  // namespace gear::store
