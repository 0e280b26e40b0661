#include "store/writing/short_episodes.h"

#include <algorithm>
#include <bit>

#include "base/errors.h"

namespace gear::store {

void ShortEpisodes::look(const Index& index) {
  if (index.state().free_pages.empty() && index.state().num_steps < index.num_slots() / 2 &&
      state_ == State::kUnseen) {
    state_ = State::kSeen;
  }
}

std::optional<std::string> ShortEpisodes::tell(const Index& index) {
  if (state_.exchange(State::kTold) != State::kSeen) {
    return std::nullopt;
  }
  const IndexState& state = index.state();
  const uint64_t mean = state.num_steps / std::max<uint64_t>(state.num_episodes, 1);
  return base::cat(
      "[buffer] pages are freed, and ", state.num_steps, " of ", index.num_slots(),
      " steps are stored: an episode's pages hold no other's steps, and the ", state.num_episodes,
      " episodes, of ", mean, " steps each or so, leave most of a ", "page of ",
      index.options().page_steps,
      " empty; give the buffer page_steps=", std::max<uint64_t>(std::bit_floor(mean / 4), 1));
}

}  // namespace gear::store
