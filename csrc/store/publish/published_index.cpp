#include "store/publish/published_index.h"

namespace gear::store {

PublishedLayout::PublishedLayout(uint64_t num_pages) {
  for (uint64_t count = num_pages;; count = (count + kFanout - 1) / kFanout) {
    levels.push_back({bytes, count});
    bytes += count * sizeof(uint64_t);
    if (count <= kMostTop) {
      break;
    }
  }
  pages = bytes;
  episodes = pages + num_pages * sizeof(PublishedPage);
  bytes = episodes + num_pages * sizeof(PublishedEpisode);
}

}  // namespace gear::store
