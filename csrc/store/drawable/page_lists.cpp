#include "store/drawable/page_lists.h"

namespace gear::store {

void PageLists::opened(uint32_t e) {
  if (e >= episodes_.size()) {
    episodes_.resize(e + 1);
  }
  episodes_[e] = {};
}

// Most often a page comes behind the last, or before the first, where a queue took it.
uint32_t PageLists::listed_before(uint32_t p) const {
  const Ends& ends = episodes_[state_.pages[p].episode];
  const uint64_t step = state_.pages[p].first_step;
  if (ends.first == kNone || step < state_.pages[ends.first].first_step) {
    return kNone;
  }
  if (step > state_.pages[ends.last].first_step) {
    return ends.last;
  }
  uint32_t before = state_.pages[p].previous;
  while (!pages_[before].listed) {
    before = state_.pages[before].previous;
  }
  return before;
}

void PageLists::add(uint32_t p) {
  Ends& ends = episodes_[state_.pages[p].episode];
  Listed& own = pages_[p];
  own.previous = listed_before(p);
  own.next = own.previous == kNone ? ends.first : pages_[own.previous].next;
  own.listed = true;
  (own.previous == kNone ? ends.first : pages_[own.previous].next) = p;
  (own.next == kNone ? ends.last : pages_[own.next].previous) = p;
}

void PageLists::remove(uint32_t p) {
  const Listed own = pages_[p];
  Ends& ends = episodes_[state_.pages[p].episode];
  (own.previous == kNone ? ends.first : pages_[own.previous].next) = own.next;
  (own.next == kNone ? ends.last : pages_[own.next].previous) = own.previous;
  pages_[p] = {};
}

}  // namespace gear::store
