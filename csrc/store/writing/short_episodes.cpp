#include "store/writing/short_episodes.h"

#include <algorithm>
#include <bit>

#include "base/errors.h"

namespace gear::store {

std::optional<std::string> ShortEpisodes::look(const Index& index) {
  const IndexState& state = index.state();
  if (told_ || !state.free_pages.empty() || state.num_steps >= index.num_slots() / 2) {
    return std::nullopt;
  }
  told_ = true;
  const uint64_t mean = state.num_steps / std::max<uint64_t>(state.num_episodes, 1);
  return base::cat(
      "[buffer] pages are freed, and ", state.num_steps, " of ", index.num_slots(),
      " steps are stored: an episode's pages hold no other's steps, and the ", state.num_episodes,
      " episodes, of ", mean, " steps each or so, leave most of a ", "page of ",
      index.options().page_steps,
      " empty; give the buffer page_steps=", std::max<uint64_t>(std::bit_floor(mean / 4), 1));
}

}  // namespace gear::store
