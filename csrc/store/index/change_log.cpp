#include "store/index/change_log.h"

#include "base/errors.h"

namespace gear::store {

ChangeLog::ChangeLog(uint64_t num_pages, uint64_t page_steps)
    : page_steps_(page_steps), place_(num_pages, kNone) {}

void ChangeLog::add_page(uint32_t page, uint64_t rows, uint64_t reached) {
  place_[page] = static_cast<uint32_t>(pages_.size());
  pages_.push_back({page, static_cast<uint16_t>(reached), static_cast<uint16_t>(rows),
                    static_cast<uint16_t>(rows)});
}

void ChangeLog::appended(uint32_t page, uint64_t row, std::span<const float> priorities) {
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

void ChangeLog::episode(uint32_t episode) {
  if (episode >= episode_flags_.size()) {
    episode_flags_.resize(episode + 1, kUnchanged);
  }
  if (episode_flags_[episode] != kUnchanged) {
    return;
  }
  episode_flags_[episode] = kChanged;
  episodes_.push_back(episode);
}

void ChangeLog::episode_weight(uint32_t e) {
  episode(e);
  episode_flags_[e] = kWeightSet;
}

void ChangeLog::everything(std::span<const Page> pages, uint64_t num_episodes) {
  for (uint32_t p = 0; p < pages.size(); ++p) {
    if (place_[p] == kNone && pages[p].episode == kNone) {
      continue;
    }
    page(p, 0, 0);
    pages_[place_[p]].kept = 0;
  }
  for (uint32_t e = 0; e < num_episodes; ++e) {
    episode_weight(e);
  }
}

void ChangeLog::follow_priorities() {
  defaults_.assign((place_.size() * page_steps_ + 63) / 64, 0);
}

void ChangeLog::clear() {
  for (const PageChange& change : pages_) {
    place_[change.page] = kNone;
  }
  for (const uint32_t episode : episodes_) {
    episode_flags_[episode] = kUnchanged;
  }
  pages_.clear();
  episodes_.clear();
}

}  // namespace gear::store
