// Epochs without replacement: every step (episode) once, in the order of a keyed permutation of
// their numbers, so that no list of N is kept and any position can be resumed. Cost: one evaluation
// of the permutation and one descent of the tree of page counts per item; unshuffled, O(1).
#include <algorithm>
#include <array>
#include <optional>

#include "select/epoch.h"
#include "select/walk.h"

namespace gear::select {
namespace {

class Sequential final : public Sampler {
 public:
  explicit Sequential(const SamplerOptions& options) : options_(options) {}

  void select(store::Index& index, uint64_t count, Selection& out) override {
    out.unit = options_.unit;
    uint64_t items = 0;
    try {
      items = epoch_.next(index, options_.unit, count, options_.drop_last);
    } catch (...) {
      walk_.reset();
      throw;
    }
    if (items == 0) {
      walk_.reset();
    } else if (options_.shuffle) {
      shuffled(index, items, out);
    } else {
      in_order(index, items, out);
    }
    for (const store::Anchor& anchor : out.anchors) index.mark_sampled(anchor, out.unit);
  }

  SamplerPosition position() const override { return epoch_.position(); }

  void restore(const SamplerPosition& position) override {
    epoch_.restore(position);
    walk_.reset();
  }

 private:
  void shuffled(const store::Index& index, uint64_t items, Selection& out) {
    const bool steps = options_.unit == store::Unit::kStep;
    const store::SumTree& tree = steps ? index.anchors() : index.heads();
    const base::Permutation order = epoch_.order(options_.seed);
    for (uint64_t done = 0; done < items;) {
      const uint64_t chunk = std::min(kDrawChunk, items - done);
      for (uint64_t i = 0; i < chunk; ++i) targets_[i] = order(epoch_.first() + done + i);
      tree.find({targets_.data(), chunk}, {hits_.data(), chunk});
      for (uint64_t i = 0; i < chunk; ++i) {
        const auto page = static_cast<uint32_t>(hits_[i].leaf);
        const uint32_t row = steps ? index.nth_anchor(page, hits_[i].remainder) : 0;
        out.add({page, row}, epoch_.probability());
      }
      done += chunk;
    }
  }

  void in_order(const store::Index& index, uint64_t items, Selection& out) {
    store::Anchor anchor{};
    if (!walk_) {
      walk_.emplace(index, options_.unit, Walk::From::kOldest);
      for (uint64_t i = 0; i < epoch_.first(); ++i) walk_->next(anchor);
    }
    while (out.size() < items && walk_->next(anchor)) out.add(anchor, epoch_.probability());
  }

  SamplerOptions options_;
  Epoch epoch_;
  std::optional<Walk> walk_;
  std::array<uint64_t, kDrawChunk> targets_;
  std::array<store::SumTree::Hit, kDrawChunk> hits_;
};

}  // namespace

std::unique_ptr<Sampler> make_sequential(const SamplerOptions& options) {
  return std::make_unique<Sequential>(options);
}

}  // namespace gear::select
