#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "store/episode.h"

namespace gear::store {

/// What changed in an index since a mirror of it last looked. The index reports a page *before* it
/// changes it, so that the log knows what the mirror still shows; every page and episode stands in
/// the log once, however often it changes. A page that is dropped and used again between two looks
/// is one entry.
/// Cost: 5 bytes a page, 1 bit a step once priorities are followed.
class ChangeLog {
 public:
  /// A page that changed, and what the mirror has of it.
  struct PageChange {
    uint32_t page;
    uint16_t reached;  ///< rows the mirror shows as such that may be drawn
    uint16_t rows;     ///< rows the mirror shows as written
    uint16_t kept;     ///< of those, how many still hold the same steps: all, or none once dropped
  };

  ChangeLog(uint64_t num_pages, uint64_t page_steps);

  /// ---- by the index ----
  /// `page` is about to change, of which so many rows are written, and so many are reached.
  void page(uint32_t page, uint64_t rows, uint64_t reached) {
    if (place_[page] == kNone) {
      add_page(page, rows, reached);
    }
  }
  /// `page`, reported already, has lost all its steps.
  void dropped(uint32_t page) { pages_[place_[page]].kept = 0; }
  /// Steps were appended to rows [row, row + priorities.size()) of `page`, reported already; a
  /// negative priority stands for the largest seen so far.
  void appended(uint32_t page, uint64_t row, std::span<const float> priorities);
  /// The extent of `episode` changed, or (episode_weight) its own priority was set too.
  void episode(uint32_t episode);
  void episode_weight(uint32_t episode);

  /// ---- by the mirror ----
  bool empty() const { return pages_.empty() && episodes_.empty(); }
  const std::vector<PageChange>& pages() const { return pages_; }
  const std::vector<uint32_t>& episodes() const { return episodes_; }
  bool weight_set(uint32_t episode) const { return episode_flags_[episode] == kWeightSet; }
  /// Whether the step in this row was appended without a priority of its own.
  bool took_default(uint64_t slot) const { return (defaults_[slot / 64] >> slot % 64 & 1) != 0; }
  /// Puts every page in use and every episode into the log, as if the mirror had nothing of them.
  void everything(std::span<const Page> pages, uint64_t num_episodes);
  /// From here on the log knows which steps were appended without a priority.
  void follow_priorities();
  /// Everything was taken.
  void clear();

 private:
  static constexpr uint8_t kUnchanged = 0;
  static constexpr uint8_t kChanged = 1;
  static constexpr uint8_t kWeightSet = 2;

  void add_page(uint32_t page, uint64_t rows, uint64_t reached);

  uint64_t page_steps_;
  std::vector<uint32_t> place_;  // of a page in pages_, or kNone
  std::vector<PageChange> pages_;
  std::vector<uint8_t> episode_flags_;
  std::vector<uint32_t> episodes_;
  std::vector<uint64_t> defaults_;  // a bit a slot; empty until priorities are followed
};

}  // namespace gear::store
