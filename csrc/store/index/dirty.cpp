#include "store/index/dirty.h"

#include <numeric>

namespace gear::store {

void Dirty::appended(uint32_t page, uint64_t row, std::span<const float> priorities) {
  if (defaults_.empty()) {
    return;
  }
  const uint64_t first = page * page_steps_ + row;
  for (uint64_t i = 0; i < priorities.size(); ++i) {
    const uint64_t bit = uint64_t{1} << (first + i) % 64;
    uint64_t& word = defaults_[(first + i) / 64];
    word = priorities[i] < 0 ? word | bit : word & ~bit;
  }
}

void Dirty::follow_priorities() { defaults_.assign((num_pages_ * page_steps_ + 63) / 64, 0); }

Dirty::Reader::Reader(Dirty& dirty) : dirty_(dirty) { ++dirty.readers_; }

void Dirty::Reader::take(uint64_t num_episodes, std::vector<uint32_t>& pages,
                         std::vector<uint32_t>& episodes) {
  if (everything_) {
    const auto all = [](uint64_t count, std::vector<uint32_t>& numbers) {
      const size_t begin = numbers.size();
      numbers.resize(begin + count);
      std::iota(numbers.begin() + static_cast<ptrdiff_t>(begin), numbers.end(), 0U);
    };
    all(dirty_.num_pages_, pages);
    all(num_episodes, episodes);
  } else {
    dirty_.pages_.since(cursor_, pages);
    dirty_.episodes_.since(cursor_, episodes);
  }
  everything_ = false;
  cursor_ = dirty_.clock_;
}

void Dirty::ByLastChange::touch(uint32_t number, uint64_t now) {
  if (number >= links_.size()) {
    links_.resize(number + uint64_t{1});
  }
  Link& link = links_[number];
  link.changed = now;
  if (number == last_) {
    return;
  }
  if (link.after != kNone) {  // somewhere before the last
    links_[link.after].before = link.before;
    if (link.before != kNone) {
      links_[link.before].after = link.after;
    }
  }
  link.before = last_;
  link.after = kNone;
  if (last_ != kNone) {
    links_[last_].after = number;
  }
  last_ = number;
}

void Dirty::ByLastChange::since(uint64_t then, std::vector<uint32_t>& numbers) const {
  for (uint32_t number = last_; number != kNone && links_[number].changed > then;
       number = links_[number].before) {
    numbers.push_back(number);
  }
}

}  // namespace gear::store
