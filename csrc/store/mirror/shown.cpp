#include "store/mirror/shown.h"

#include <utility>

#include "base/threads/prefetch.h"

namespace gear::store {
Shown::Shown(Index& index)
    : index_(index), reader_(index.dirty()), shown_pages_(index.options().num_pages) {}

void Shown::look() {
  pages_.clear();
  episodes_.clear();
  changed_pages_.clear();
  changed_episodes_.clear();
  const uint64_t num_episodes = index_.state().episodes.size();
  reader_.take(num_episodes, changed_pages_, changed_episodes_);
  for (size_t i = 0; i < changed_pages_.size(); ++i) {
    if (i + kAhead < changed_pages_.size()) {
      base::prefetch(&shown_pages_[changed_pages_[i + kAhead]]);
      base::prefetch(&index_.page(changed_pages_[i + kAhead]));
    }
    const uint32_t p = changed_pages_[i];
    const Page& page = index_.page(p);
    const bool used = page.episode != kNone;
    const ShownPage before =
        std::exchange(shown_pages_[p], ShownPage{page.generation, page.rows, used});
    if (used || before.used) {
      const bool same = used && before.used && before.generation == page.generation;
      pages_.push_back({p, same ? before.rows : uint16_t{0}});
    }
  }
  shown_episodes_.resize(num_episodes);
  for (const uint32_t e : changed_episodes_) {
    const Episode& episode = index_.episode(e);
    const ShownEpisode before =
        std::exchange(shown_episodes_[e], ShownEpisode{episode.uid, episode.ended()});
    // The index sets it when an episode opens, and when it ends.
    episodes_.push_back({e, before.uid != episode.uid || before.ended != episode.ended()});
  }
}

void Shown::follow_priorities() {
  index_.dirty().follow_priorities();
  for (ShownPage& page : shown_pages_) {
    page.rows = 0;
  }
  shown_episodes_.assign(shown_episodes_.size(), {});
  reader_.start_over();
}

}  // namespace gear::store
