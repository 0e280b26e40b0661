#include "select/best.h"

#include <algorithm>
#include <cmath>

namespace gear::select {

std::span<const Best::Item> Best::find(const store::Index& index, uint64_t count) {
  items_.clear();
  if (steps_) {
    scan_steps(index, count);
  } else {
    scan_episodes(index, count);
  }
  std::sort(items_.begin(), items_.end());
  return items_;
}

void Best::offer(Item item, uint64_t count) {
  if (items_.size() == count) {
    if (!(item < items_.front())) {
      return;
    }
    std::pop_heap(items_.begin(), items_.end());
    items_.pop_back();
  }
  items_.push_back(item);
  std::push_heap(items_.begin(), items_.end());
}

void Best::scan_steps(const store::Index& index, uint64_t count) {
  const std::span<const float> priorities = index.state().priorities;
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
    offer({static_cast<double>(priority), anchor}, count);
    if (items_.size() == count) {
      threshold = static_cast<float>(items_.front().priority);
    }
  }
}

void Best::scan_episodes(const store::Index& index, uint64_t count) {
  for (uint32_t e = index.state().oldest; e != store::kNone; e = index.episode(e).newer) {
    const store::Episode& episode = index.episode(e);
    if (index.drawables().drawable(e)) {
      offer({store::episode_priority(episode), {episode.head, 0}}, count);
    }
  }
}

}  // namespace gear::select
