// Prioritised with replacement over all ranks: P(i) = w_i / W, W the weights of all of them.
#include "select/group/by_chance.h"

namespace gear::select {
namespace {

class GroupWeighted final : public GroupByChance<WeightedItems> {
 public:
  GroupWeighted(const SamplerOptions& options, store::Index& index, uint32_t rank, uint32_t size)
      : GroupByChance(options, index, rank, size), beta_(options.beta) {}

  void select(store::Index& index, std::span<const std::byte> offers, uint64_t count,
              GroupDraw& out) override {
    GroupByChance::select(index, offers, count, out);
    out.beta = beta_;
  }

  SamplerPosition position() const override {
    SamplerPosition position = GroupByChance::position();
    position.beta = beta_;
    return position;
  }
  void restore(const SamplerPosition& position) override {
    set_beta(position.beta);
    GroupByChance::restore(position);
  }

  void set_beta(double beta) override {
    check_beta(beta);
    beta_ = beta;
  }

 private:
  double beta_;
};

}  // namespace

std::unique_ptr<GroupSampler> make_group_weighted(const SamplerOptions& options,
                                                  store::Index& index, uint32_t rank,
                                                  uint32_t size) {
  return std::make_unique<GroupWeighted>(options, index, rank, size);
}

}  // namespace gear::select
