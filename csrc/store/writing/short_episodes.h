#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

#include "store/index/index.h"

namespace gear::store {

/// Whether pages had to go while not half of the slots held a step, since episodes are much shorter
/// than a page; of which users are told once.
class ShortEpisodes {
 public:
  /// Where a page is wanted. Under the shard's lock.
  void look(const Index& index);
  /// Whether there is something to tell. Any thread; one load.
  bool seen() const { return state_.load(std::memory_order_relaxed) == State::kSeen; }
  /// What to say, once. Under the shard's lock.
  std::optional<std::string> tell(const Index& index);

 private:
  enum class State : uint8_t { kUnseen, kSeen, kTold };

  std::atomic<State> state_{State::kUnseen};
};

}  // namespace gear::store
