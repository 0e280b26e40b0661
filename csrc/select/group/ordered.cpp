// The first ones of an order over all ranks: kFifo and kLifo by age, kTopK by priority. Every rank
// offers the keys of its own first `count` items, in order; merged, they are the batch, and of its
// own a rank gives as many as the merge took, from the front. Cost: what the policy costs on one
// shard, 8 * count bytes a rank offered, and a heap of ranks.
#include <algorithm>
#include <bit>
#include <functional>
#include <limits>

#include "select/best.h"
#include "select/group/group_sampler.h"
#include "select/group/offers.h"
#include "select/ordered.h"

namespace gear::select {
namespace {

// Of an offer that has ended: behind all others.
constexpr uint64_t kNoKey = std::numeric_limits<uint64_t>::max();

// The next key of a rank's offer. The least head goes first; no two have the same turn.
struct Head {
  uint64_t key;
  uint32_t turn;
  uint32_t rank;
  uint64_t place;  // in the offer

  bool operator>(const Head& other) const {
    return key != other.key ? key > other.key : turn > other.turn;
  }
};

class GroupOrdered final : public GroupSampler {
 public:
  GroupOrdered(const SamplerOptions& options, store::Index& index, uint32_t rank, uint32_t size)
      : policy_(options.policy),
        unit_(options.unit),
        rank_(rank),
        size_(size),
        offer_(offer_of(options, index)),
        best_(options, index) {}

  size_t offer_bytes(uint64_t count) const override { return count * sizeof(uint64_t); }

  void offer(store::Index& index, uint64_t count, std::span<std::byte> out) override {
    keys_.clear();
    anchors_.clear();
    if (policy_ == Policy::kTopK) {
      list_best(index, count);
    } else {
      list_by_age(index, count);
    }
    keys_.resize(count, kNoKey);
    put_offer(keys_, out);
  }

  void select(store::Index& index, std::span<const std::byte> offers, uint64_t count,
              GroupDraw& out) override {
    GEAR_CHECK(offers.size() == size_ * offer_bytes(count));
    out.clear();
    out.own.unit = unit_;
    merge(offers, count, out);
    if (out.owners.empty()) {
      throw_nothing_offered();
    }
    for (size_t i = 0; i < out.own_draws.size(); ++i) {
      out.own.add(anchors_[i], 1.0F);
      index.mark_sampled(anchors_[i], unit_);
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
    Walk walk(index, offer_.get(), oldest_first ? Walk::From::kOldest : Walk::From::kNewest);
    store::Anchor anchor{};
    while (anchors_.size() < count && walk.next(anchor)) {
      const uint64_t uid = index.episode(index.page(anchor.page).episode).uid;
      keys_.push_back(oldest_first ? uid : kNoKey - uid);
      anchors_.push_back(anchor);
    }
  }

  // Whose the first `count` of all offers are.
  void merge(std::span<const std::byte> offers, uint64_t count, GroupDraw& out) {
    heads_.clear();
    for (uint32_t rank = 0; rank < size_; ++rank) {
      push_head(head_at(offers, count, rank, 0));
    }
    Head head = pop_head();
    while (head.key != kNoKey && out.owners.size() < count) {
      // A rank's turn lasts until another one's head goes first.
      const uint64_t first = head.place;
      while (head.key != kNoKey && (heads_.empty() || heads_.front() > head)) {
        head = head_at(offers, count, head.rank, head.place + 1);
      }
      const uint64_t items = std::min<uint64_t>(head.place - first, count - out.owners.size());
      out.add(head.rank, items, head.rank == rank_);
      push_head(head);
      head = pop_head();
    }
  }

  Head head_at(std::span<const std::byte> offers, uint64_t count, uint32_t rank,
               uint64_t place) const {
    const uint64_t key = place < count ? offer_at(offers, rank * count + place) : kNoKey;
    return {key, policy_ == Policy::kLifo ? size_ - 1 - rank : rank, rank, place};
  }

  void push_head(const Head& head) {
    heads_.push_back(head);
    std::ranges::push_heap(heads_, std::greater<>{});
  }

  Head pop_head() {
    std::ranges::pop_heap(heads_, std::greater<>{});
    const Head head = heads_.back();
    heads_.pop_back();
    return head;
  }

  Policy policy_;
  store::Unit unit_;
  uint32_t rank_;
  uint32_t size_;
  std::shared_ptr<store::Offer> offer_;
  Best best_;
  std::vector<uint64_t> keys_;          // offered, padded to the batch
  std::vector<store::Anchor> anchors_;  // whose keys they are
  std::vector<Head> heads_;             // of a merge: a heap whose front goes first
};

}  // namespace

std::unique_ptr<GroupSampler> make_group_ordered(const SamplerOptions& options, store::Index& index,
                                                 uint32_t rank, uint32_t size) {
  return std::make_unique<GroupOrdered>(options, index, rank, size);
}

}  // namespace gear::select
