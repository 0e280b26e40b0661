#include "select/group/group_sampler.h"

#include <algorithm>
#include <numeric>

#include "base/errors.h"
#include "select/group/group_cut.h"
#include "select/group/offers.h"
#include "store/id.h"

namespace gear::select {

GroupSampler::GroupSampler(const SamplerOptions& options, store::Index& index, uint32_t rank,
                           uint32_t size)
    : law_(options),
      rank_(rank),
      size_(size),
      space_(options, index),
      in_order_(options, index),
      offered_(size),
      own_(rank),
      order_(options, index) {
  if (size > store::StepId::kMostOwners) {
    throw base::InvalidArgument(base::cat("[sampler] draws over ", size, " ranks: ",
                                          store::StepId::kMostOwners, " at most are allowed"));
  }
  GEAR_CHECK(rank < size);
  if (law_.chance() != nullptr && index.options().max_times_sampled > 0) {
    throw base::InvalidArgument(base::cat(
        "[sampler] ", kPolicies.name(options.policy), " over many ranks from a buffer with ",
        "max_times_sampled ", index.options().max_times_sampled,
        ": each draw would change what the others may choose; use Fifo, Lifo or TopK, or a buffer ",
        "without max_times_sampled"));
  }
}

size_t GroupSampler::offer_bytes() const {
  if (law_.chance() == nullptr) {
    return sizeof(GroupCut::Window);
  }
  return 2 * sizeof(uint64_t);
}

void GroupSampler::offer(store::Index& index, uint64_t count, std::span<std::byte> out) {
  if (law_.chance() != nullptr) {
    const auto shift = static_cast<uint64_t>(int64_t{space_.shift()});
    const uint64_t offer[] = {space_.total(index),
                              law_.epoch() != nullptr ? space_.version(index) : shift};
    put_offer(offer, out);
    return;
  }
  order_.list(index, count, listed_);
  keys_.clear();
  for (const Order::Item& item : listed_) {
    keys_.push_back(item.key);
  }
  put_offer(GroupCut::window_of(keys_, 0, keys_.size()), out);
}

void GroupSampler::select(store::Index& index, const GroupRequest& request, GroupDraw& out) {
  GEAR_CHECK(request.offers.size() == size_ * offer_bytes());
  if (law_.chance() != nullptr) {
    draw_by_chance(index, request, out);
  } else {
    take_first(index, request, out);
  }
}

void GroupSampler::draw_by_chance(store::Index& index, const GroupRequest& request,
                                  GroupDraw& out) {
  const Epoch* epoch = law_.epoch();
  uint64_t version = 0;  // versions only grow: their sum changes whenever one of them does
  for (size_t r = 0; r < size_; ++r) {
    const uint64_t other = offer_at(request.offers, 2 * r + 1);
    version += epoch != nullptr ? other : 0;
    offered_[r] = {offer_at(request.offers, 2 * r),
                   epoch != nullptr ? 0 : static_cast<int32_t>(static_cast<int64_t>(other))};
  }
  own_.set_offers(offered_);
  if (own_.all() == 0 && (epoch == nullptr || !epoch->has_begun())) {
    throw_nothing_offered();
  }
  const uint64_t items = law_.chance()->next(own_.all(), version, request.items);
  out.clear();
  if (items == 0) {
    return;
  }
  out.items = items;
  out.own.unit = law_.options().unit;
  out.beta = law_.beta();
  if (epoch != nullptr && !epoch->shuffles()) {
    take_in_order(index, *epoch, items, out);
  } else {
    find_own(index, items, out);
  }
  if (law_.needs_least_of_all()) {
    out.least = space_.least(own_.all_here());
  }
  index.count_sampled(out.own.size());  // no draw withdraws anything
  gather_counts(request, size_, out);
}

void GroupSampler::find_own(const store::Index& index, uint64_t items, GroupDraw& out) {
  const Epoch* epoch = law_.epoch();
  if (epoch == nullptr || !places_.pays(own_.all(), own_.size())) {
    own_.draw(items, *law_.chance(), index, space_, out);
    return;
  }
  places_.find(epoch->order(), own_.begin(), own_.size(), epoch->first(), items, numbers_,
               offsets_);
  own_.take(numbers_, offsets_, index, space_, out);
}

// The batch is a run of what all ranks offer, and so is what falls on this one.
void GroupSampler::take_in_order(const store::Index& index, const Epoch& epoch, uint64_t items,
                                 GroupDraw& out) {
  const uint64_t first = std::max(own_.begin(), epoch.first());
  const uint64_t end = std::min(own_.begin() + own_.size(), epoch.first() + items);
  if (first < end) {
    in_order_.add(index, space_.version(index), first - own_.begin(), end - first,
                  one_of(own_.all()), out.own);
    out.own_draws.resize(end - first);
    std::iota(out.own_draws.begin(), out.own_draws.end(),
              static_cast<uint32_t>(first - epoch.first()));
  }
}

void GroupSampler::take_first(store::Index& index, const GroupRequest& request, GroupDraw& out) {
  const Policy policy = law_.options().policy;
  out.clear();
  out.own.unit = law_.options().unit;
  GroupCut cut(keys_, rank_, size_, policy == Policy::kLifo);
  for (size_t i = 0; i < cut.numbers().size(); ++i) {
    cut.numbers()[i] = offer_at(request.offers, i);
  }
  while (!cut.narrow(request.items, out.counts)) {
    request.gather(cut.own(), std::vector<uint64_t>(size_, GroupCut::kNumbers), cut.numbers());
  }
  for (const uint64_t one : out.counts) {
    out.items += one;
  }
  if (out.items == 0) {
    throw_nothing_offered();
  }
  for (size_t i = 0; i < out.counts[rank_]; ++i) {
    out.own.add(listed_[i].anchor, 1.0F);
    index.mark_sampled(listed_[i].anchor, out.own.unit);
  }
  if (request.numbered) {
    std::vector<uint64_t> keys(out.items);
    request.gather(std::span(keys_).first(out.counts[rank_]), out.counts, keys);
    cut.number(keys, out.counts, out.own_draws);
  }
}

}  // namespace gear::select
