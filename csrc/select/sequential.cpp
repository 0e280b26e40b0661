// Epochs without replacement: every step (episode) once, in the order of a keyed permutation of
// their numbers, so that no list of N is kept and any position can be resumed. Cost: one evaluation
// of the permutation and one descent of the tree of page counts per item; unshuffled, O(1).
#include <array>
#include <optional>

#include "base/errors.h"
#include "base/permutation.h"
#include "base/philox.h"
#include "select/sampler.h"
#include "select/walk.h"

namespace gear::select {
namespace {

constexpr uint64_t kShuffleStream = 1;  // apart from the stream of the draws

class Sequential final : public Sampler {
 public:
  explicit Sequential(const SamplerOptions& options) : options_(options) {}

  void select(store::Index& index, uint64_t count, Selection& out) override {
    out.unit = options_.unit;
    const store::SumTree& tree =
        options_.unit == store::Unit::kStep ? index.anchors() : index.heads();
    if (at_.size == 0) {
      at_.size = tree.total();
      version_ = index.version();
    }
    if (!version_) version_ = index.version();  // restored: the content is as it was saved
    if (*version_ != index.version() || tree.total() != at_.size) {
      const uint64_t began_with = at_.size;
      next_epoch();
      throw base::InvalidArgument(base::cat(
          "[select] the buffer changed in the middle of a sequential epoch (", began_with,
          " items when it began, ", tree.total(),
          " offered): this epoch is given up and the next begins; append between epochs only"));
    }
    const uint64_t left = at_.size - at_.draws;
    if (left == 0 || (options_.drop_last && left < count)) {
      next_epoch();
      return;
    }
    const uint64_t items = std::min(count, left);
    if (options_.shuffle) {
      shuffled(index, tree, items, out);
    } else {
      in_order(index, items, out);
    }
    at_.draws += items;
    for (const store::Anchor& anchor : out.anchors) index.mark_sampled(anchor, out.unit);
  }

  SamplerPosition position() const override { return at_; }

  void restore(const SamplerPosition& position) override {
    if (position.draws > position.size) {
      throw base::InvalidArgument(base::cat("[select] position ", position.draws,
                                            " in an epoch of ", position.size, ": not a state"));
    }
    at_ = position;
    version_.reset();
    walk_.reset();
  }

 private:
  void next_epoch() { restore({0, at_.epoch + 1, 0, 0}); }

  void shuffled(const store::Index& index, const store::SumTree& tree, uint64_t items,
                Selection& out) {
    const base::Draw128 key = base::philox(options_.seed, kShuffleStream, at_.epoch);
    const base::Permutation permutation(at_.size, key.hi, key.lo);
    for (uint64_t done = 0; done < items;) {
      const uint64_t chunk = std::min(kDrawChunk, items - done);
      for (uint64_t i = 0; i < chunk; ++i) targets_[i] = permutation(at_.draws + done + i);
      tree.find({targets_.data(), chunk}, {hits_.data(), chunk});
      for (uint64_t i = 0; i < chunk; ++i) {
        const auto page = static_cast<uint32_t>(hits_[i].leaf);
        const uint32_t row =
            options_.unit == store::Unit::kStep ? index.nth_anchor(page, hits_[i].remainder) : 0;
        out.add({page, row}, probability());
      }
      done += chunk;
    }
  }

  void in_order(const store::Index& index, uint64_t items, Selection& out) {
    store::Anchor anchor{};
    if (!walk_) {
      walk_.emplace(index, options_.unit, Walk::From::kOldest);
      for (uint64_t i = 0; i < at_.draws; ++i) walk_->next(anchor);
    }
    while (out.size() < items && walk_->next(anchor)) out.add(anchor, probability());
  }

  float probability() const { return static_cast<float>(1.0 / static_cast<double>(at_.size)); }

  SamplerOptions options_;
  SamplerPosition at_;
  std::optional<uint64_t> version_;  // of the index when the epoch began
  std::optional<Walk> walk_;
  std::array<uint64_t, kDrawChunk> targets_;
  std::array<store::SumTree::Hit, kDrawChunk> hits_;
};

}  // namespace

std::unique_ptr<Sampler> make_sequential(const SamplerOptions& options) {
  return std::make_unique<Sequential>(options);
}

}  // namespace gear::select
