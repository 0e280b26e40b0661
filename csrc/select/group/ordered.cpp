// The first ones of an order over all ranks: kFifo and kLifo by age, kTopK by priority. Every rank
// offers the keys of its own first `count` items, in order; merged, they are the batch, and of its
// own a rank gives as many as the merge took, from the front. Cost: what the policy costs on one
// shard, 8 * count bytes a rank offered, and a heap of ranks.
#include <algorithm>
#include <bit>
#include <limits>

#include "select/best.h"
#include "select/group/group_sampler.h"
#include "select/group/offers.h"
#include "select/walk.h"

namespace gear::select {
namespace {

constexpr uint64_t kNoKey = std::numeric_limits<uint64_t>::max();

// The next key of a rank's offer; the smallest goes first, among equals the one with the lower
// turn.
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
  GroupOrdered(const SamplerOptions& options, uint32_t rank, uint32_t size)
      : policy_(options.policy),
        unit_(options.unit),
        rank_(rank),
        size_(size),
        best_(options.unit) {}

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
    out.owners.clear();
    out.own.clear();
    out.own.unit = unit_;
    const uint64_t taken = merge(offers, count, out.owners);
    if (out.owners.empty()) {
      throw_nothing_offered();
    }
    for (uint64_t i = 0; i < taken; ++i) {
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
    Walk walk(index, unit_, oldest_first ? Walk::From::kOldest : Walk::From::kNewest);
    store::Anchor anchor{};
    while (anchors_.size() < count && walk.next(anchor)) {
      const uint64_t uid = index.episode(index.page(anchor.page).episode).uid;
      keys_.push_back(oldest_first ? uid : kNoKey - uid);
      anchors_.push_back(anchor);
    }
  }

  // Appends the owners of the first `count` of all offers; returns how many are this rank's.
  uint64_t merge(std::span<const std::byte> offers, uint64_t count, std::vector<uint16_t>& owners) {
    heads_.clear();
    const auto head_at = [&](uint32_t rank, uint64_t place) {
      const uint64_t key = place < count ? offer_at(offers, rank * count + place) : kNoKey;
      return Head{key, policy_ == Policy::kLifo ? size_ - 1 - rank : rank, rank, place};
    };
    for (uint32_t rank = 0; rank < size_; ++rank) {
      const Head head = head_at(rank, 0);
      if (head.key != kNoKey) {
        heads_.push_back(head);
      }
    }
    std::make_heap(heads_.begin(), heads_.end(), std::greater<>{});
    uint64_t own = 0;
    while (owners.size() < count && !heads_.empty()) {
      std::pop_heap(heads_.begin(), heads_.end(), std::greater<>{});
      Head head = heads_.back();
      heads_.pop_back();
      // For as long as the rank is ahead of all others, the heap stays as it is.
      do {
        owners.push_back(static_cast<uint16_t>(head.rank));
        own += head.rank == rank_ ? 1 : 0;
        head = head_at(head.rank, head.place + 1);
      } while (owners.size() < count && head.key != kNoKey &&
               (heads_.empty() || heads_.front() > head));
      if (head.key == kNoKey) {
        continue;
      }
      heads_.push_back(head);
      std::push_heap(heads_.begin(), heads_.end(), std::greater<>{});
    }
    return own;
  }

  Policy policy_;
  store::Unit unit_;
  uint32_t rank_;
  uint32_t size_;
  Best best_;
  std::vector<uint64_t> keys_;          // offered, padded to the batch
  std::vector<store::Anchor> anchors_;  // whose keys they are
  std::vector<Head> heads_;
};

}  // namespace

std::unique_ptr<GroupSampler> make_group_ordered(const SamplerOptions& options, uint32_t rank,
                                                 uint32_t size) {
  return std::make_unique<GroupOrdered>(options, rank, size);
}

}  // namespace gear::select
