#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/threads/prefetch.h"
#include "store/episode.h"

namespace gear::store {

/// Which pages and episodes of an index changed, for any number of readers, each of which takes
/// what changed since it last looked. A reader compares for itself what it showed with what is
/// there, so that a change may be told before or after it is made, and as often as one likes.
///
///     log of pages    7 ── 2 ── 9 ── 4 ── 1
///                               │         └── the last change
///                               └── a reader's cursor: 4 and 1 are new to it
///
/// What is new to every reader already is not written into the log again. Cost: O(1) a change,
/// amortised: the log is cleared of what counts no more when it is twice as long as what there is;
/// without readers none. With some 64 bytes a page and 64 an episode at most, and once priorities
/// are followed a bit a step.
class Dirty {
 public:
  Dirty(uint64_t num_pages, uint64_t page_steps) : num_pages_(num_pages), page_steps_(page_steps) {}

  // ---- by the index ----
  void page(uint32_t page) {
    if (readers_ > 0) {
      pages_.touch(page, taken_, clock_);
    }
  }
  void episode(uint32_t episode) {
    if (readers_ > 0) {
      episodes_.touch(episode, taken_, clock_);
    }
  }
  /// Asks for what a change of both will look at.
  void prefetch(uint32_t page, uint32_t episode) const {
    if (readers_ > 0) {
      pages_.prefetch(page);
      episodes_.prefetch(episode);
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
  // Numbers in the order in which they changed.
  class Log {
   public:
    /// `taken`: up to where some reader has come. A change behind it is new to all of them.
    void touch(uint32_t number, uint64_t taken, uint64_t& clock) {
      if (number >= last_.size()) {
        last_.resize(number + uint64_t{1});
      }
      if (last_[number] <= taken) {
        write(number, ++clock);
      }
    }
    /// Asks for what touch() will look at.
    void prefetch(uint32_t number) const {
      if (number < last_.size()) {
        base::prefetch(&last_[number]);
      }
    }
    /// Appends those that changed after `then`, each once.
    void since(uint64_t then, std::vector<uint32_t>& numbers) const;

   private:
    struct Entry {
      uint64_t changed;
      uint32_t number;
    };

    void write(uint32_t number, uint64_t now);
    bool is_last(const Entry& entry) const { return last_[entry.number] == entry.changed; }

    std::vector<Entry> entries_;  // of a number's only the last one counts
    std::vector<uint64_t> last_;  // by number: when it changed; 0: never
  };

  uint64_t num_pages_;
  uint64_t page_steps_;
  uint64_t clock_ = 0;
  uint64_t taken_ = 0;  // the largest cursor
  uint64_t readers_ = 0;
  Log pages_;
  Log episodes_;
  std::vector<uint64_t> defaults_;  // a bit a slot; empty until priorities are followed
};

}  // namespace gear::store
