#pragma once

#include "select/sampler.h"
#include "select/walk.h"

namespace gear::select {

/// The first `count` of a walk from one end of the content; the same ones every time, until they
/// are evicted or withdrawn by max_times_sampled. Cost: O(count).
class Ordered final : public Sampler {
 public:
  Ordered(store::Unit unit, Walk::From from) : unit_(unit), from_(from) {}

  void select(store::Index& index, uint64_t count, Selection& out) override {
    out.unit = unit_;
    Walk walk(index, unit_, from_);
    store::Anchor anchor{};
    while (out.size() < count && walk.next(anchor)) {
      out.add(anchor, 1.0F);
    }
    for (const store::Anchor& chosen : out.anchors) {
      index.mark_sampled(chosen, unit_);
    }
  }

 private:
  store::Unit unit_;
  Walk::From from_;
};

}  // namespace gear::select
