#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "store/episode.h"

namespace gear::store {

/// Which pages and episodes of an index changed, for any number of readers, each of which takes
/// what changed since it last looked. A reader compares for itself what it showed with what is
/// there, so that a change may be told before or after it is made, and as often as one likes.
///
///     pages, by their last change    7 ── 2 ── 9 ── 4 ── 1
///                                            │         └── the last of all
///                                            └── a reader's cursor: 9, 4 and 1 are new to it
///
/// Cost: O(1) a change; without readers none. With some 16 bytes a page and 16 an episode, and once
/// priorities are followed a bit a step.
class Dirty {
 public:
  Dirty(uint64_t num_pages, uint64_t page_steps) : num_pages_(num_pages), page_steps_(page_steps) {}

  // ---- by the index ----
  void page(uint32_t page) {
    if (readers_ > 0) {
      pages_.touch(page, ++clock_);
    }
  }
  void episode(uint32_t episode) {
    if (readers_ > 0) {
      episodes_.touch(episode, ++clock_);
    }
  }
  /// Rows from `row` on of `page` hold new steps; a negative priority stands for the largest seen
  /// so far.
  void appended(uint32_t page, uint64_t row, std::span<const float> priorities);

  // ---- by readers ----
  /// Whether the step in this slot was appended without a priority of its own since somebody last
  /// began to follow priorities.
  bool took_default(uint64_t slot) const {
    return !defaults_.empty() && (defaults_[slot / 64] >> slot % 64 & 1) != 0;
  }
  /// From here on it is known which steps are appended without a priority. Every other reader that
  /// follows them has taken all that there is, or its priorities are the index's own.
  void follow_priorities();

  /// Everything is new to it at first.
  class Reader {
   public:
    /// `dirty` outlives it.
    explicit Reader(Dirty& dirty);
    ~Reader() { --dirty_.readers_; }
    Reader(const Reader&) = delete;
    Reader& operator=(const Reader&) = delete;

    bool nothing_new() const { return !everything_ && cursor_ == dirty_.clock_; }
    /// Appends the pages and, of so many, the episodes that are new to it, which they are no more.
    void take(uint64_t num_episodes, std::vector<uint32_t>& pages, std::vector<uint32_t>& episodes);
    /// Everything is new to it again.
    void start_over() { everything_ = true; }

   private:
    Dirty& dirty_;
    uint64_t cursor_ = 0;
    bool everything_ = true;
  };

 private:
  // Numbers in the order of their last touch.
  class ByLastChange {
   public:
    void touch(uint32_t number, uint64_t now);
    /// Appends those touched after `then`.
    void since(uint64_t then, std::vector<uint32_t>& numbers) const;

   private:
    struct Link {
      uint64_t changed = 0;  // 0: never, and in no order
      uint32_t before = kNone;
      uint32_t after = kNone;
    };

    std::vector<Link> links_;
    uint32_t last_ = kNone;
  };

  uint64_t num_pages_;
  uint64_t page_steps_;
  uint64_t clock_ = 0;
  uint64_t readers_ = 0;
  ByLastChange pages_;
  ByLastChange episodes_;
  std::vector<uint64_t> defaults_;  // a bit a slot; empty until priorities are followed
};

}  // namespace gear::store
