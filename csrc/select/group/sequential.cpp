// Epochs without replacement over all ranks: item n is the n-th of rank 0's, then rank 1's, ...;
// every rank follows the same epoch and resolves the items that are its own. A rank offers how many
// items it has, and the version of its content, and tells how many fell on it. Cost: see
// sequential.cpp; shuffled, one evaluation of the permutation a draw of the whole batch, or what
// OwnPlaces says where that is less.
#include <algorithm>
#include <array>
#include <numeric>

#include "select/epoch.h"
#include "select/group/group_sampler.h"
#include "select/group/offers.h"
#include "select/group/own_draws.h"
#include "select/group/own_places.h"
#include "select/ordered.h"

namespace gear::select {
namespace {

class GroupSequential final : public GroupSampler {
 public:
  GroupSequential(const SamplerOptions& options, store::Index& index, uint32_t rank, uint32_t size)
      : options_(options),
        items_(options, index),
        in_order_(options, index),
        totals_(size),
        own_(rank) {}

  size_t offer_bytes(uint64_t) const override { return 2 * sizeof(uint64_t); }

  void offer(store::Index& index, uint64_t, std::span<std::byte> out) override {
    const uint64_t offer[] = {items_.total(index), items_.version(index)};
    put_offer(offer, out);
  }

  void select(store::Index& index, const GroupRequest& request, GroupDraw& out) override {
    GEAR_CHECK(request.offers.size() == totals_.size() * 2 * sizeof(uint64_t));
    uint64_t version = 0;  // versions only grow: their sum changes whenever one of them does
    for (size_t r = 0; r < totals_.size(); ++r) {
      totals_[r] = offer_at(request.offers, 2 * r);
      version += offer_at(request.offers, 2 * r + 1);
    }
    own_.set_totals(totals_);
    if (own_.all() == 0 && epoch_.position().size == 0) {
      throw_nothing_offered();
    }
    const bool begins = epoch_.position().draws == 0;
    const uint64_t items = epoch_.next(own_.all(), version, request.items, options_.drop_last);
    out.clear();
    if (items == 0) {
      return;
    }
    if (begins) {
      in_order_.reset();
    }
    out.items = items;
    out.own.unit = options_.unit;
    if (options_.shuffle) {
      draw_shuffled(index, items, out);
    } else {
      draw_in_order(index, items, out);
    }
    index.count_sampled(out.own.size());  // no draw withdraws anything: see make_group_sampler
    gather_one(request, out.own.size(), static_cast<uint32_t>(totals_.size()), out.counts);
  }

  SamplerPosition position() const override { return epoch_.position(); }

  void restore(const SamplerPosition& position) override {
    epoch_.restore(position);
    in_order_.reset();
  }

 private:
  void draw_shuffled(const store::Index& index, uint64_t items, GroupDraw& out) {
    const base::Permutation order = epoch_.order(options_.seed);
    if (places_.pays(own_.all(), own_.size())) {
      places_.find(order, own_.begin(), own_.size(), epoch_.first(), items, numbers_, offsets_);
      own_.take(numbers_, offsets_, index, items_, out);
      return;
    }
    const auto scan = [&](const base::RangePart& part, uint64_t first, uint32_t some,
                          uint32_t* numbers, uint64_t* offsets) {
      std::array<uint64_t, 512> elements;
      size_t kept = 0;
      for (uint32_t done = 0; done < some; done += elements.size()) {
        const size_t count = std::min<size_t>(elements.size(), some - done);
        order.elements_from(epoch_.first() + first + done, {elements.data(), count});
        for (size_t i = 0; i < count; ++i) {
          const uint64_t offset = elements[i] - part.begin;
          numbers[kept] = static_cast<uint32_t>(first + done + i);
          offsets[kept] = offset;
          kept += offset < part.size ? 1 : 0;
        }
      }
      return kept;
    };
    own_.draw(items, scan, index, items_, out);
  }

  // The batch is a run of what all ranks offer, and so is what falls on this one.
  void draw_in_order(const store::Index& index, uint64_t items, GroupDraw& out) {
    const uint64_t first = std::max(own_.begin(), epoch_.first());
    const uint64_t end = std::min(own_.begin() + own_.size(), epoch_.first() + items);
    if (first < end) {
      in_order_.add(index, first - own_.begin(), end - first, epoch_.probability(), out.own);
      out.own_draws.resize(end - first);
      std::iota(out.own_draws.begin(), out.own_draws.end(),
                static_cast<uint32_t>(first - epoch_.first()));
    }
  }

  SamplerOptions options_;
  Epoch epoch_;
  EqualItems items_;
  InOrder in_order_;
  std::vector<uint64_t> totals_;
  OwnDraws own_;
  OwnPlaces places_;
  std::vector<uint32_t> numbers_;
  std::vector<uint64_t> offsets_;
};

}  // namespace

std::unique_ptr<GroupSampler> make_group_sequential(const SamplerOptions& options,
                                                    store::Index& index, uint32_t rank,
                                                    uint32_t size) {
  return std::make_unique<GroupSequential>(options, index, rank, size);
}

}  // namespace gear::select
