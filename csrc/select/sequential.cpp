// Epochs without replacement: every step (episode) once, in the order of a keyed permutation of
// their numbers, so that no list of N is kept and any position can be resumed. Cost: one evaluation
// of the permutation and one descent of the tree of page counts per item; unshuffled, O(1).
#include <algorithm>
#include <array>

#include "select/epoch.h"
#include "select/ordered.h"

namespace gear::select {
namespace {

class Sequential final : public Sampler {
 public:
  Sequential(const SamplerOptions& options, store::Index& index)
      : options_(options), items_(options, index), in_order_(options, index) {}

  void select(store::Index& index, uint64_t count, Selection& out) override {
    out.unit = options_.unit;
    const bool begins = epoch_.position().draws == 0;
    const uint64_t items =
        epoch_.next(items_.total(index), items_.version(index), count, options_.drop_last);
    if (items == 0) {
      return;
    }
    if (begins) {
      in_order_.reset();
    }
    if (options_.shuffle) {
      shuffled(index, items, out);
    } else {
      in_order_.add(index, epoch_.first(), items, epoch_.probability(), out);
    }
    for (const store::Anchor& anchor : out.anchors) {
      index.mark_sampled(anchor, out.unit);
    }
  }

  SamplerPosition position() const override { return epoch_.position(); }

  void restore(const SamplerPosition& position) override {
    epoch_.restore(position);
    in_order_.reset();
  }

 private:
  void shuffled(const store::Index& index, uint64_t items, Selection& out) {
    const base::Permutation order = epoch_.order(options_.seed);
    for (uint64_t done = 0; done < items;) {
      const uint64_t chunk = std::min(kDrawChunk, items - done);
      for (uint64_t i = 0; i < chunk; ++i) {
        numbers_[i] = order(epoch_.first() + done + i);
      }
      items_.add(index, {numbers_.data(), chunk}, epoch_.position().size, out);
      done += chunk;
    }
  }

  SamplerOptions options_;
  Epoch epoch_;
  EqualItems items_;
  InOrder in_order_;
  std::array<uint64_t, kDrawChunk> numbers_;
};

}  // namespace

std::unique_ptr<Sampler> make_sequential(const SamplerOptions& options, store::Index& index) {
  return std::make_unique<Sequential>(options, index);
}

}  // namespace gear::select
