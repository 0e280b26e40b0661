// The first ones of an order over all ranks: kFifo and kLifo by age, kTopK by priority. A rank
// lists the keys of its own first `items` items, in order; how many of each list are among the
// first ones of all is searched for together, without an item that travels: see GroupCut. Cost:
// what the policy costs on one shard, and per round of the search GroupCut::kNumbers numbers a rank
// received, and their sorting: one round for batches of up to kSamples items over all ranks, and
// one more for every factor of kSamples / 2 that the lists of all hold per rank beyond that. Where
// the draws' numbers are asked for (locality off), one more message: the keys of the batch, 8 bytes
// an item.
#include <algorithm>
#include <bit>
#include <limits>

#include "select/best.h"
#include "select/group/group_cut.h"
#include "select/group/group_sampler.h"
#include "select/group/offers.h"
#include "select/ordered.h"

namespace gear::select {
namespace {

constexpr uint64_t kLargestKey = std::numeric_limits<uint64_t>::max();

class GroupOrdered final : public GroupSampler {
 public:
  GroupOrdered(const SamplerOptions& options, store::Index& index, uint32_t rank, uint32_t size)
      : policy_(options.policy),
        unit_(options.unit),
        rank_(rank),
        size_(size),
        steps_(drawable_steps(options, index)),
        best_(options, index) {}

  size_t offer_bytes(uint64_t) const override { return sizeof(GroupCut::Window); }

  void offer(store::Index& index, uint64_t count, std::span<std::byte> out) override {
    keys_.clear();
    anchors_.clear();
    if (policy_ == Policy::kTopK) {
      list_best(index, count);
    } else {
      list_by_age(index, count);
    }
    put_offer(GroupCut::window_of(keys_, 0, keys_.size()), out);
  }

  void select(store::Index& index, const GroupRequest& request, GroupDraw& out) override {
    GEAR_CHECK(request.offers.size() == size_ * offer_bytes(request.items));
    out.clear();
    out.own.unit = unit_;
    GroupCut cut(keys_, rank_, size_, policy_ == Policy::kLifo);
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
      out.own.add(anchors_[i], 1.0F);
      index.mark_sampled(anchors_[i], unit_);
    }
    if (request.numbered) {
      std::vector<uint64_t> keys(out.items);
      request.gather(std::span(keys_).first(out.counts[rank_]), out.counts, keys);
      cut.number(keys, out.counts, out.own_draws);
    }
  }

 private:
  void list_best(const store::Index& index, uint64_t count) {
    constexpr double kAboveAll = std::numeric_limits<double>::infinity();
    for (const Best::Item& item : best_.find(index, count)) {
      // Bits of numbers from 0 up are in the order of the numbers; 0 is added to lose its sign.
      keys_.push_back(std::bit_cast<uint64_t>(kAboveAll) -
                      std::bit_cast<uint64_t>(item.priority + 0.0));
      anchors_.push_back(item.anchor);
    }
  }

  // By creation number of the episode in its shard, then rank, then step; kLifo in reverse.
  void list_by_age(const store::Index& index, uint64_t count) {
    const bool oldest_first = policy_ == Policy::kFifo;
    Walk walk(index, steps_.get(), oldest_first ? Walk::From::kOldest : Walk::From::kNewest);
    store::Anchor anchor{};
    while (anchors_.size() < count && walk.next(anchor)) {
      const uint64_t uid = index.episode(index.page(anchor.page).episode).uid;
      keys_.push_back(oldest_first ? uid : kLargestKey - uid);
      anchors_.push_back(anchor);
    }
  }

  Policy policy_;
  store::Unit unit_;
  uint32_t rank_;
  uint32_t size_;
  std::shared_ptr<store::Drawable> steps_;
  Best best_;
  std::vector<uint64_t> keys_;          // of the own first items, ascending
  std::vector<store::Anchor> anchors_;  // whose they are
};

}  // namespace

std::unique_ptr<GroupSampler> make_group_ordered(const SamplerOptions& options, store::Index& index,
                                                 uint32_t rank, uint32_t size) {
  return std::make_unique<GroupOrdered>(options, index, rank, size);
}

}  // namespace gear::select
