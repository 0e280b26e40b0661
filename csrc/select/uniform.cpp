// Uniform with replacement: P(i) = 1 / N. Cost: see EqualItems.
#include "select/draw.h"
#include "select/items.h"

namespace gear::select {
namespace {

class Uniform final : public Sampler {
 public:
  Uniform(const SamplerOptions& options, store::Index& index)
      : unit_(options.unit), items_(options, index), draws_(options.seed) {}

  void select(store::Index& index, uint64_t count, Selection& out) override {
    out.unit = unit_;
    draw_all(index, items_, draws_, count, out);
  }

  SamplerPosition position() const override { return {draws_.made(), 0, 0, 0}; }
  void restore(const SamplerPosition& position) override { draws_.restore(position.draws); }

 private:
  store::Unit unit_;
  EqualItems items_;
  Draws draws_;
};

}  // namespace

std::unique_ptr<Sampler> make_uniform(const SamplerOptions& options, store::Index& index) {
  return std::make_unique<Uniform>(options, index);
}

}  // namespace gear::select
