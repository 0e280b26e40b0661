// Independent draws from the items of all ranks, uniform or with P(i) = w_i / W, W the weights of
// all of them: draw n falls on one number below the total over all ranks, the same on every rank;
// its owner resolves it as a sampler of one shard would. A rank offers its total, and tells how
// many draws fell on it. Cost: one number a draw of the whole batch (see base::philox_scan), and
// what Items costs for the own ones.
#include <type_traits>

#include "select/draw.h"
#include "select/group/offers.h"
#include "select/group/own_draws.h"
#include "select/items.h"

namespace gear::select {
namespace {

template <class Items>
class GroupByChance final : public GroupSampler {
 public:
  GroupByChance(const SamplerOptions& options, store::Index& index, uint32_t rank, uint32_t size)
      : unit_(options.unit),
        items_(options, index),
        draws_(options.seed),
        beta_(kWeighted ? options.beta : 0),
        size_(size),
        totals_(size),
        own_(rank) {}

  size_t offer_bytes(uint64_t) const override { return sizeof(uint64_t); }

  void offer(store::Index& index, uint64_t, std::span<std::byte> out) override {
    const uint64_t total = items_.total(index);
    put_offer({&total, 1}, out);
  }

  void select(store::Index& index, const GroupRequest& request, GroupDraw& out) override {
    GEAR_CHECK(request.offers.size() == totals_.size() * sizeof(uint64_t));
    for (size_t r = 0; r < totals_.size(); ++r) {
      totals_[r] = offer_at(request.offers, r);
    }
    own_.set_totals(totals_);
    if (own_.all() == 0) {
      throw_nothing_offered();
    }
    const auto scan = [&](const base::RangePart& part, uint64_t first, uint32_t some,
                          uint32_t* numbers, uint64_t* offsets) {
      return draws_.scan(first, some, part, numbers, offsets);
    };
    own_.draw(request.items, scan, index, items_, out);
    draws_.skip(request.items);
    out.items = request.items;
    out.own.unit = unit_;
    out.beta = beta_;
    index.count_sampled(out.own.size());  // no draw withdraws anything: see make_group_sampler
    gather_one(request, out.own.size(), size_, out.counts);
  }

  SamplerPosition position() const override { return {draws_.made(), 0, 0, beta_}; }
  void restore(const SamplerPosition& position) override {
    if (kWeighted) {
      set_beta(position.beta);
    }
    draws_.restore(position.draws);
  }

  void set_beta(double beta) override {
    if (!kWeighted) {
      GroupSampler::set_beta(beta);
    }
    check_beta(beta);
    beta_ = beta;
  }

 private:
  static constexpr bool kWeighted = std::is_same_v<Items, WeightedItems>;

  store::Unit unit_;
  Items items_;
  Draws draws_;
  double beta_;
  uint32_t size_;
  std::vector<uint64_t> totals_;
  OwnDraws own_;
};

}  // namespace

std::unique_ptr<GroupSampler> make_group_by_chance(const SamplerOptions& options,
                                                   store::Index& index, uint32_t rank,
                                                   uint32_t size) {
  if (options.policy == Policy::kWeighted) {
    return std::make_unique<GroupByChance<WeightedItems>>(options, index, rank, size);
  }
  return std::make_unique<GroupByChance<EqualItems>>(options, index, rank, size);
}

}  // namespace gear::select
