// The first items of a walk from one end of the content: kFifo from the oldest (with
// max_times_sampled = 1 the buffer is a queue), kLifo from the newest (a stack). The same ones
// every time, until they are evicted or withdrawn by max_times_sampled. Cost: O(count), see Walk.
#include "select/ordered.h"

namespace gear::select {

Walk::Walk(const store::Index& index, const store::Offer* offer, From from)
    : index_(&index), offer_(offer), forward_(from == From::kOldest) {
  episode_ = forward_ ? index.state().oldest : index.state().newest;
  enter_episode();
}

void Walk::enter_episode() {
  if (episode_ == store::kNone) {
    return;
  }
  uid_ = index_->episode(episode_).uid;
  if (offer_ == nullptr) {
    return;
  }
  const store::UnspentSteps& unspent = index_->offers().unspent();
  page_ = forward_ ? unspent.first(episode_) : unspent.last(episode_);
  enter_page();
}

void Walk::enter_page() {
  if (page_ == store::kNone) {
    return;
  }
  ++visited_;
  const store::UnspentSteps& unspent = index_->offers().unspent();
  const uint32_t offered = offer_->rows(page_);
  begin_ = std::min(unspent.begin(page_), offered);
  end_ = std::min(unspent.end(page_), offered);
}

bool Walk::next(store::Anchor& anchor) {
  const store::UnspentSteps& unspent = index_->offers().unspent();
  while (episode_ != store::kNone) {
    while (offer_ != nullptr && page_ != store::kNone) {
      while (begin_ < end_) {
        const uint32_t row = forward_ ? begin_++ : --end_;
        ++visited_;
        if (!unspent.spent(index_->slot({page_, row}))) {
          anchor = {page_, row};
          return true;
        }
      }
      page_ = forward_ ? unspent.next(page_) : unspent.previous(page_);
      enter_page();
    }
    ++visited_;
    const uint32_t e = episode_;
    episode_ = forward_ ? index_->episode(e).newer : index_->episode(e).older;
    enter_episode();
    if (offer_ == nullptr && index_->offers().drawable(e)) {
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
    walk_.emplace(index, offer_.get(), Walk::From::kOldest);
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
        offer_(offer_of(options, index)) {}

  void select(store::Index& index, uint64_t count, Selection& out) override {
    out.unit = unit_;
    Walk walk(index, offer_.get(), from_);
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
  std::shared_ptr<store::Offer> offer_;
};

}  // namespace

std::unique_ptr<Sampler> make_ordered(const SamplerOptions& options, store::Index& index) {
  return std::make_unique<Ordered>(options, index);
}

}  // namespace gear::select
