// The largest priorities, largest first, the lower slot first among equals. Cost: one scan of the
// priorities (4 bytes a step; about 0.3 ms per million) with a heap of `count`.
#include <algorithm>
#include <cmath>

#include "select/sampler.h"

namespace gear::select {
namespace {

struct Entry {
  double priority;
  uint64_t place;  // slot of a step, head page of an episode

  // Better entries sort first.
  bool operator<(const Entry& other) const {
    return priority != other.priority ? priority > other.priority : place < other.place;
  }
};

class TopK final : public Sampler {
 public:
  explicit TopK(const SamplerOptions& options) : unit_(options.unit) {}

  void select(store::Index& index, uint64_t count, Selection& out) override {
    out.unit = unit_;
    best_.clear();
    if (unit_ == store::Unit::kStep) {
      scan_steps(index, count);
    } else {
      scan_episodes(index, count);
    }
    std::sort(best_.begin(), best_.end());
    const uint64_t page_steps = index.options().page_steps;
    for (const Entry& entry : best_) {
      const store::Anchor anchor =
          unit_ == store::Unit::kStep
              ? store::Anchor{static_cast<uint32_t>(entry.place / page_steps),
                              static_cast<uint32_t>(entry.place % page_steps)}
              : store::Anchor{static_cast<uint32_t>(entry.place), 0};
      out.add(anchor, 1.0F);
      index.mark_sampled(anchor, unit_);
    }
  }

 private:
  // best_ is a heap whose front is the worst entry kept.
  void offer(Entry entry, uint64_t count) {
    if (best_.size() == count) {
      if (!(entry < best_.front())) return;
      std::pop_heap(best_.begin(), best_.end());
      best_.pop_back();
    }
    best_.push_back(entry);
    std::push_heap(best_.begin(), best_.end());
  }

  void scan_steps(const store::Index& index, uint64_t count) {
    const std::span<const float> priorities = index.state().priorities;
    const bool spends = index.options().max_times_sampled > 0;
    const uint64_t page_steps = index.options().page_steps;
    float threshold = 0.0F;  // no smaller priority can enter a full heap
    for (uint64_t slot = 0; slot < priorities.size(); ++slot) {
      const float priority = priorities[slot];
      if (!(priority >= threshold) || std::signbit(priority)) continue;
      if (spends && !index.drawable(store::Anchor{static_cast<uint32_t>(slot / page_steps),
                                                  static_cast<uint32_t>(slot % page_steps)})) {
        continue;
      }
      offer({static_cast<double>(priority), slot}, count);
      if (best_.size() == count) threshold = static_cast<float>(best_.front().priority);
    }
  }

  void scan_episodes(const store::Index& index, uint64_t count) {
    for (uint32_t e = index.state().oldest; e != store::kNone; e = index.episode(e).newer) {
      const store::Episode& episode = index.episode(e);
      if (index.drawable(episode)) offer({index.episode_priority(episode), episode.head}, count);
    }
  }

  store::Unit unit_;
  std::vector<Entry> best_;
};

}  // namespace

std::unique_ptr<Sampler> make_topk(const SamplerOptions& options) {
  return std::make_unique<TopK>(options);
}

}  // namespace gear::select
