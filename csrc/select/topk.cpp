// The largest priorities, largest first, the lower slot first among equals. Cost: see Best.
#include "select/best.h"

namespace gear::select {
namespace {

class TopK final : public Sampler {
 public:
  TopK(const SamplerOptions& options, store::Index& index)
      : unit_(options.unit), best_(options, index) {}

  void select(store::Index& index, uint64_t count, Selection& out) override {
    out.unit = unit_;
    for (const Best::Item& item : best_.find(index, count)) {
      out.add(item.anchor, 1.0F);
    }
    for (const store::Anchor& anchor : out.anchors) {
      index.mark_sampled(anchor, unit_);
    }
  }

 private:
  store::Unit unit_;
  Best best_;
};

}  // namespace

std::unique_ptr<Sampler> make_topk(const SamplerOptions& options, store::Index& index) {
  return std::make_unique<TopK>(options, index);
}

}  // namespace gear::select
