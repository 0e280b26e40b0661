// The first items of a walk from one end of the content: kFifo from the oldest (with
// max_times_sampled = 1 the buffer is a queue), kLifo from the newest (a stack). The same ones
// every time, until they are evicted or withdrawn by max_times_sampled. Cost: O(count), see Walk.
#include "select/ordered.h"

namespace gear::select {

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
    ++visited_;
    row_ = forward_ ? 0 : static_cast<uint32_t>(index_->options().page_steps);
  }
}

bool Walk::next_row(store::Anchor& anchor) {
  const store::StepBits& bits = steps_->bits();
  const uint32_t row = forward_ ? bits.next(page_, row_) : bits.previous(page_, row_);
  if (row == store::kNone) {
    return false;
  }
  ++visited_;
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
    ++visited_;
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

void InOrder::add(const store::Index& index, uint64_t first, uint64_t count, float probability,
                  Selection& out) {
  store::Anchor anchor{};
  if (!walk_ || walk_->lost() || next_ != first) {
    walk_.emplace(index, steps_.get(), Walk::From::kOldest);
    for (next_ = 0; next_ < first; ++next_) {
      walk_->next(anchor);
    }
  }
  for (; next_ < first + count && walk_->next(anchor); ++next_) {
    out.add(anchor, probability);
  }
}

namespace {

class Ordered final : public Sampler {
 public:
  Ordered(const SamplerOptions& options, store::Index& index)
      : unit_(options.unit),
        from_(options.policy == Policy::kFifo ? Walk::From::kOldest : Walk::From::kNewest),
        steps_(drawable_steps(options, index)) {}

  void select(store::Index& index, uint64_t count, Selection& out) override {
    out.unit = unit_;
    Walk walk(index, steps_.get(), from_);
    store::Anchor anchor{};
    while (out.size() < count && walk.next(anchor)) {
      out.add(anchor, 1.0F);
    }
    for (const store::Anchor& chosen : out.anchors) {
      index.mark_sampled(chosen, unit_);
    }
  }

 private:
  store::Unit unit_;
  Walk::From from_;
  std::shared_ptr<store::Drawable> steps_;
};

}  // namespace

std::unique_ptr<Sampler> make_ordered(const SamplerOptions& options, store::Index& index) {
  return std::make_unique<Ordered>(options, index);
}

}  // namespace gear::select
