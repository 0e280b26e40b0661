#include "select/order.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace gear::select {
namespace {

constexpr uint64_t kLargestKey = std::numeric_limits<uint64_t>::max();
constexpr double kAboveAll = std::numeric_limits<double>::infinity();

// Bits of numbers from 0 up are in the order of the numbers; 0 is added to lose its sign.
uint64_t key_of(double priority) {
  return std::bit_cast<uint64_t>(kAboveAll) - std::bit_cast<uint64_t>(priority + 0.0);
}

double priority_of(uint64_t key) {
  return std::bit_cast<double>(std::bit_cast<uint64_t>(kAboveAll) - key);
}

bool before(const Order::Item& one, const Order::Item& other) {
  if (one.key != other.key) {
    return one.key < other.key;
  }
  if (one.anchor.page != other.anchor.page) {
    return one.anchor.page < other.anchor.page;
  }
  return one.anchor.row < other.anchor.row;
}

// The front of the heap is the last one kept.
void offer(const Order::Item& item, uint64_t count, std::vector<Order::Item>& heap) {
  if (heap.size() == count) {
    if (!before(item, heap.front())) {
      return;
    }
    std::pop_heap(heap.begin(), heap.end(), before);
    heap.pop_back();
  }
  heap.push_back(item);
  std::push_heap(heap.begin(), heap.end(), before);
}

}  // namespace

Walk::Walk(const store::Index& index, const store::Drawable* steps, From from)
    : index_(&index), steps_(steps), forward_(from == From::kOldest) {
  episode_ = forward_ ? index.state().oldest : index.state().newest;
  enter_episode();
}

void Walk::enter_episode() {
  if (episode_ == store::kNone) {
    return;
  }
  uid_ = index_->episode(episode_).uid;
  if (steps_ != nullptr) {
    page_ = forward_ ? steps_->first(episode_) : steps_->last(episode_);
    enter_page();
  }
}

void Walk::enter_page() {
  if (page_ != store::kNone) {
    row_ = forward_ ? 0 : static_cast<uint32_t>(index_->options().page_steps);
  }
}

bool Walk::next_row(store::Anchor& anchor) {
  const store::StepBits& bits = steps_->bits();
  const uint32_t row = forward_ ? bits.next(page_, row_) : bits.previous(page_, row_);
  if (row == store::kNone) {
    return false;
  }
  row_ = forward_ ? row + 1 : row;
  anchor = {page_, row};
  return true;
}

bool Walk::next(store::Anchor& anchor) {
  while (episode_ != store::kNone) {
    while (steps_ != nullptr && page_ != store::kNone) {
      if (next_row(anchor)) {
        return true;
      }
      page_ = forward_ ? steps_->next(page_) : steps_->previous(page_);
      enter_page();
    }
    const uint32_t e = episode_;
    episode_ = forward_ ? index_->episode(e).newer : index_->episode(e).older;
    enter_episode();
    if (steps_ == nullptr && index_->drawables().drawable(e)) {
      anchor = {index_->episode(e).head, 0};
      return true;
    }
  }
  return false;
}

void InOrder::add(const store::Index& index, uint64_t version, uint64_t first, uint64_t count,
                  float probability, Selection& out) {
  store::Anchor anchor{};
  if (!walk_ || version_ != version || walk_->lost() || next_ != first) {
    walk_.emplace(index, steps_.get(), Walk::From::kOldest);
    version_ = version;
    for (next_ = 0; next_ < first; ++next_) {
      walk_->next(anchor);
    }
  }
  for (; next_ < first + count && walk_->next(anchor); ++next_) {
    out.add(anchor, probability);
  }
}

void Order::list(const store::Index& index, uint64_t count, std::vector<Item>& items) const {
  items.clear();
  if (policy_ == Policy::kTopK) {
    list_best(index, count, items);
  } else {
    list_by_age(index, count, items);
  }
}

void Order::list_by_age(const store::Index& index, uint64_t count, std::vector<Item>& items) const {
  const bool oldest_first = policy_ == Policy::kFifo;
  Walk walk(index, steps_.get(), oldest_first ? Walk::From::kOldest : Walk::From::kNewest);
  store::Anchor anchor{};
  while (items.size() < count && walk.next(anchor)) {
    const uint64_t uid = index.episode(index.page(anchor.page).episode).uid;
    items.push_back({oldest_first ? uid : kLargestKey - uid, anchor});
  }
}

void Order::list_best(const store::Index& index, uint64_t count, std::vector<Item>& items) const {
  if (steps_) {
    scan_steps(index, count, items);
  } else {
    scan_episodes(index, count, items);
  }
  std::sort(items.begin(), items.end(), before);
}

void Order::scan_steps(const store::Index& index, uint64_t count, std::vector<Item>& heap) const {
  const std::span<const float> priorities = index.slots().priorities;
  const store::StepBits& bits = steps_->bits();
  float threshold = 0.0F;  // no smaller priority can enter a full heap
  for (uint64_t slot = 0; slot < priorities.size(); ++slot) {
    const float priority = priorities[slot];
    if (!(priority >= threshold)) {
      continue;
    }
    const store::Anchor anchor = index.anchor_of(static_cast<uint32_t>(slot));
    if (!bits.test(anchor.page, anchor.row)) {
      continue;
    }
    offer({key_of(static_cast<double>(priority)), anchor}, count, heap);
    if (heap.size() == count) {
      threshold = static_cast<float>(priority_of(heap.front().key));
    }
  }
}

void Order::scan_episodes(const store::Index& index, uint64_t count,
                          std::vector<Item>& heap) const {
  for (uint32_t e = index.state().oldest; e != store::kNone; e = index.episode(e).newer) {
    const store::Episode& episode = index.episode(e);
    if (index.drawables().drawable(e)) {
      offer({key_of(store::episode_priority(index.state(), episode)), {episode.head, 0}}, count,
            heap);
    }
  }
}

}  // namespace gear::select
