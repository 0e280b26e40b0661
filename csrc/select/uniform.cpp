// Uniform with replacement: P(i) = 1 / N. Cost: one descent of the tree of page counts per draw
// (4 levels at 1e6 steps).
#include <array>

#include "select/draw.h"

namespace gear::select {
namespace {

class Uniform final : public Sampler {
 public:
  explicit Uniform(const SamplerOptions& options) : unit_(options.unit), draws_(options.seed) {}

  void select(store::Index& index, uint64_t count, Selection& out) override {
    out.unit = unit_;
    const store::SumTree& tree = unit_ == store::Unit::kStep ? index.anchors() : index.heads();
    draw_all(index, count, out, [&](uint64_t chunk) {
      if (tree.total() == 0) return;
      const float probability = static_cast<float>(1.0 / static_cast<double>(tree.total()));
      const std::span targets(targets_.data(), chunk);
      draws_.fill(tree.total(), targets);
      tree.find(targets, {hits_.data(), chunk});
      for (uint64_t i = 0; i < chunk; ++i) __builtin_prefetch(&index.page(page_of(i)));
      const size_t first = out.extend(chunk);
      for (uint64_t i = 0; i < chunk; ++i) {
        const uint32_t page = page_of(i);
        const uint32_t row =
            unit_ == store::Unit::kStep ? index.nth_anchor(page, hits_[i].remainder) : 0;
        out.anchors[first + i] = {page, row};
        out.probabilities[first + i] = probability;
      }
    });
  }

  SamplerPosition position() const override { return {draws_.made(), 0, 0, 0}; }
  void restore(const SamplerPosition& position) override { draws_.restore(position.draws); }

 private:
  uint32_t page_of(uint64_t i) const { return static_cast<uint32_t>(hits_[i].leaf); }

  store::Unit unit_;
  Draws draws_;
  std::array<uint64_t, kDrawChunk> targets_;
  std::array<store::SumTree::Hit, kDrawChunk> hits_;
};

}  // namespace

std::unique_ptr<Sampler> make_uniform(const SamplerOptions& options) {
  return std::make_unique<Uniform>(options);
}

}  // namespace gear::select
