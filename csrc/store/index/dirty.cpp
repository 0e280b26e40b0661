#include "store/index/dirty.h"

#include <algorithm>
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
  cursor_ = dirty_.taken_ = dirty_.clock_;
}

void Dirty::Log::write(uint32_t number, uint64_t now) {
  constexpr size_t kSpare = 64;
  if (entries_.size() >= 2 * last_.size() + kSpare) {
    std::erase_if(entries_, [this](const Entry& entry) { return !is_last(entry); });
  }
  entries_.push_back({now, number});
  last_[number] = now;  // behind what may fail
}

void Dirty::Log::since(uint64_t then, std::vector<uint32_t>& numbers) const {
  auto entry = std::ranges::upper_bound(entries_, then, {}, &Entry::changed);
  for (; entry != entries_.end(); ++entry) {
    if (is_last(*entry)) {
      numbers.push_back(entry->number);
    }
  }
}

}  // namespace gear::store
