#pragma once

#include "plan/batch.h"

namespace gear::deliver {

/// Takes a batch on from the host memory that it was gathered in.
class Stage {
 public:
  virtual ~Stage() = default;

  /// The GPU that batches go to.
  virtual int device() const = 0;
  /// Sends the gathered batch on and puts its new block in place of the one it lies in; does not
  /// wait. Any thread.
  virtual void send(plan::Batch& batch) = 0;
};

}  // namespace gear::deliver
