#pragma once

#include "select/draw.h"
#include "select/group/group_sampler.h"
#include "select/group/offers.h"
#include "select/group/own_draws.h"
#include "select/items.h"

namespace gear::select {

/// Independent draws from the items of all ranks: draw n falls on one number below the total over
/// all ranks, the same on every rank; its owner resolves it as a sampler of one shard would. A rank
/// offers its total. Cost: one number and its owner a draw of the whole batch (13 ns with 8 ranks,
/// 22 with 512, on one core), and what Items costs for the own ones.
template <class Items>
class GroupByChance : public GroupSampler {
 public:
  GroupByChance(const SamplerOptions& options, store::Index& index, uint32_t rank, uint32_t size)
      : unit_(options.unit),
        items_(options, index),
        draws_(options.seed),
        totals_(size),
        own_(rank, size) {}

  size_t offer_bytes(uint64_t) const override { return sizeof(uint64_t); }

  void offer(store::Index& index, uint64_t, std::span<std::byte> out) override {
    const uint64_t total = items_.total(index);
    put_offer({&total, 1}, out);
  }

  void select(store::Index& index, std::span<const std::byte> offers, uint64_t count,
              GroupDraw& out) override {
    GEAR_CHECK(offers.size() == totals_.size() * sizeof(uint64_t));
    for (size_t r = 0; r < totals_.size(); ++r) {
      totals_[r] = offer_at(offers, r);
    }
    own_.ranges().set(totals_);
    const uint64_t all = own_.ranges().all();
    if (all == 0) {
      throw_nothing_offered();
    }
    own_.find(
        count,
        [&](uint64_t first, std::span<uint64_t> targets) {
          draws_.fill_ahead(first, all, targets);
        },
        out.owners);
    draws_.skip(count);
    out.own.unit = unit_;
    own_.resolve(index, items_, out.own);
    index.count_sampled(out.own.size());  // no draw withdraws anything: see make_group_sampler
  }

  SamplerPosition position() const override { return {draws_.made(), 0, 0, 0}; }
  void restore(const SamplerPosition& position) override { draws_.restore(position.draws); }

 private:
  store::Unit unit_;
  Items items_;
  Draws draws_;
  std::vector<uint64_t> totals_;
  OwnDraws own_;
};

}  // namespace gear::select
