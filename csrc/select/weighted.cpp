// Prioritised with replacement: P(i) = w_i / W with w_i = p_i^alpha, and importance weights over
// the batch (importance.h). Cost: see WeightedItems.
#include <algorithm>

#include "select/draw.h"
#include "select/importance.h"
#include "select/items.h"

namespace gear::select {
namespace {

class Weighted final : public Sampler {
 public:
  Weighted(const SamplerOptions& options, store::Index& index)
      : unit_(options.unit), items_(options, index), beta_(options.beta), draws_(options.seed) {}

  void select(store::Index& index, uint64_t count, Selection& out) override {
    out.unit = unit_;
    draw_all(index, items_, draws_, count, out);
    if (out.size() == 0) {
      return;
    }
    const float least = *std::min_element(out.probabilities.begin(), out.probabilities.end());
    set_importance(beta_, least, out.probabilities, out.weights);
  }

  SamplerPosition position() const override { return {draws_.made(), 0, 0, beta_}; }
  void restore(const SamplerPosition& position) override {
    set_beta(position.beta);  // may refuse
    draws_.restore(position.draws);
  }

  void set_beta(double beta) override {
    check_beta(beta);
    beta_ = beta;
  }

 private:
  store::Unit unit_;
  WeightedItems items_;
  double beta_;
  Draws draws_;
};

}  // namespace

std::unique_ptr<Sampler> make_weighted(const SamplerOptions& options, store::Index& index) {
  return std::make_unique<Weighted>(options, index);
}

}  // namespace gear::select
