#pragma once

#include <span>
#include <vector>

#include "store/index/index.h"

namespace gear::store {

/// What a mirror shows of an index, and from it what the mirror has to be sent.
/// Cost: 8 bytes a page and 16 an episode.
class Shown {
 public:
  static constexpr size_t kAhead = 8;  ///< records that whoever goes through them asks for ahead

  struct PageChange {
    uint32_t page;
    uint16_t kept;  ///< rows that the mirror shows, and that still hold the same steps
  };
  struct EpisodeChange {
    uint32_t episode;
    bool weight_set;  ///< its own priority was set by the index since; else the mirror's stands
  };

  /// Nothing at first.
  explicit Shown(Index& index);

  bool up_to_date() const { return reader_.nothing_new(); }
  /// Finds what changed, which the mirror is sent before the next call.
  void look();
  std::span<const PageChange> pages() const { return pages_; }
  std::span<const EpisodeChange> episodes() const { return episodes_; }
  /// Nothing again; from here on priorities are followed, which the mirror begins to hold, or
  /// which it has missed some of.
  void follow_priorities();

 private:
  struct ShownPage {
    uint32_t generation = 0;
    uint16_t rows = 0;
    bool used = false;
  };
  struct ShownEpisode {
    uint64_t uid = 0;
    bool ended = false;
  };

  Index& index_;
  Dirty::Reader reader_;
  std::vector<ShownPage> shown_pages_;
  std::vector<ShownEpisode> shown_episodes_;
  std::vector<PageChange> pages_;
  std::vector<EpisodeChange> episodes_;
  std::vector<uint32_t> changed_pages_;
  std::vector<uint32_t> changed_episodes_;
};

}  // namespace gear::store
