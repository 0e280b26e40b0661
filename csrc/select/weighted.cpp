// Prioritised with replacement: P(i) = w_i / W with w_i = p_i^alpha, and importance weights
// (N P(i))^-beta / max over the batch (Schaul et al., Prioritized Experience Replay,
// arXiv:1511.05952). Cost: one descent of the weight tree per draw (5 levels at 1e6 steps).
#include <algorithm>
#include <array>

#include "base/touch.h"
#include "select/draw.h"
#include "store/fixed_point.h"

namespace gear::select {
namespace {

class Weighted final : public Sampler {
 public:
  Weighted(const SamplerOptions& options, store::Index& index)
      : unit_(options.unit),
        tree_(index.weights(options.alpha, options.unit)),
        beta_(options.beta),
        draws_(options.seed) {}

  void select(store::Index& index, uint64_t count, Selection& out) override {
    out.unit = unit_;
    const store::SumTree& tree = *tree_;
    draw_all(index, count, out, [&](uint64_t chunk) {
      const uint64_t total = tree.total();
      if (total == 0) return;
      const std::span targets(targets_.data(), chunk);
      draws_.fill(total, targets);
      tree.find(targets, {hits_.data(), chunk});
      const double scale = 1.0 / static_cast<double>(total);
      const size_t first = out.extend(chunk);
      for (uint64_t i = 0; i < chunk; ++i) {
        const uint64_t leaf = hits_[i].leaf;
        const store::Anchor anchor = unit_ == store::Unit::kStep
                                         ? index.anchor_of(static_cast<uint32_t>(leaf))
                                         : store::Anchor{static_cast<uint32_t>(leaf), 0};
        base::touch(&index.page(anchor.page));
        out.anchors[first + i] = anchor;
        out.probabilities[first + i] = static_cast<float>(static_cast<double>(tree[leaf]) * scale);
      }
    });
    set_importance(out);
  }

  SamplerPosition position() const override { return {draws_.made(), 0, 0, beta_}; }
  void restore(const SamplerPosition& position) override {
    draws_.restore(position.draws);
    set_beta(position.beta);
  }

  void set_beta(double beta) override {
    check_beta(beta);
    beta_ = beta;
  }

 private:
  // The largest importance weight belongs to the smallest probability, so that N cancels:
  // w_i / max w = (P(i) / min P)^-beta.
  void set_importance(Selection& out) {
    if (out.size() == 0) return;
    const float least = *std::min_element(out.probabilities.begin(), out.probabilities.end());
    const double reference = store::log2_portable(static_cast<double>(least));
    powers_.resize(out.size());
    store::powers_portable(out.probabilities, reference, -beta_, powers_);
    std::copy(powers_.begin(), powers_.end(), out.weights.begin());
  }

  store::Unit unit_;
  std::shared_ptr<const store::SumTree> tree_;
  double beta_;
  Draws draws_;
  std::array<uint64_t, kDrawChunk> targets_;
  std::array<store::SumTree::Hit, kDrawChunk> hits_;
  std::vector<double> powers_;
};

}  // namespace

std::unique_ptr<Sampler> make_weighted(const SamplerOptions& options, store::Index& index) {
  return std::make_unique<Weighted>(options, index);
}

}  // namespace gear::select
