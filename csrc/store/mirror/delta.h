#pragma once

#include <bit>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/host_device.h"
#include "store/index/index.h"

/// What a mirror is sent of an index: records of pages and episodes that changed. Plain data and
/// arithmetic, for the host that encodes it and the GPU (or a test) that applies it.

namespace gear::store {

/// Rows [begin, end) of a page, at most kMaxRows of them, and, in the first record of a page, the
/// page itself. Of those in [kept, page.rows) the mirror has no priority: they take
/// values[first_value + row - max(begin, kept)]. For each set of steps that the mirror shows lie
/// from words[first_word] on: how many of the page may be drawn, and the bits of these rows.
struct alignas(64) PageDelta {
  static constexpr uint32_t kMaxRows = 1024;

  Page page;
  uint32_t number;
  uint32_t first_value;
  uint32_t first_word;
  uint16_t begin;  ///< a multiple of 64
  uint16_t end;
  uint16_t kept;
  bool first;
  bool head;  ///< the page is the head of an episode that may be drawn as a whole

  GEAR_HD uint32_t num_words() const { return (end - begin + 63U) / 64; }
};
static_assert(sizeof(PageDelta) == 64);

struct alignas(16) EpisodeDelta {
  uint64_t begin;
  uint64_t end;
  uint64_t closing_columns;
  double weight;
  uint32_t number;
  bool weight_set;  ///< else the mirror's own weight stands
  EpisodeState state;
};
static_assert(sizeof(EpisodeDelta) == 48);

/// One copy's worth: the four parts lie behind each other.
struct DeltaRound {
  uint64_t num_pages = 0;
  uint64_t num_episodes = 0;
  uint64_t num_words = 0;
  uint64_t num_values = 0;

  GEAR_HD uint64_t episodes_offset() const { return num_pages * sizeof(PageDelta); }
  GEAR_HD uint64_t words_offset() const {
    return episodes_offset() + num_episodes * sizeof(EpisodeDelta);
  }
  GEAR_HD uint64_t values_offset() const { return words_offset() + num_words * sizeof(uint64_t); }
  uint64_t bytes() const { return values_offset() + num_values * sizeof(float); }
};

/// What a mirror shows of an index, and from it what the mirror has to be sent, round by round:
///
///     encoder.look(steps, with_priorities);
///     while (!encoder.done()) {
///       DeltaRound round = encoder.next(part);  // the mirror applies it
///     }
///
/// Cost: 8 bytes a page and 16 an episode.
class DeltaEncoder {
 public:
  /// The mirror shows nothing at first.
  explicit DeltaEncoder(Index& index);

  bool up_to_date() const { return reader_.nothing_new(); }
  /// Finds what changed, which the mirror is sent before the next call. `steps`: the sets that the
  /// mirror shows, in its order; they last until done(). `with_priorities`: those that it does not
  /// have are sent.
  void look(std::span<const std::shared_ptr<const Drawable>> steps, bool with_priorities);
  bool done() const { return next_page_ == pages_.size() && next_episode_ == episodes_.size(); }
  /// Fills `out` with as much as fits. Room for one page of kMaxPageSteps (256 KiB) is enough.
  DeltaRound next(std::span<std::byte> out);
  /// The mirror shows nothing again; from here on priorities are followed, which it begins to hold,
  /// or which it has missed some of.
  void follow_priorities();

 private:
  // What the mirror shows.
  struct ShownPage {
    uint32_t generation = 0;
    uint16_t rows = 0;
    bool used = false;
  };
  struct ShownEpisode {
    uint64_t uid = 0;
    bool ended = false;
  };
  // What it has to be sent.
  struct PageChange {
    uint32_t page;
    uint16_t kept;  // rows that the mirror shows, and that still hold the same steps
  };
  struct EpisodeChange {
    uint32_t episode;
    bool weight_set;  // its own priority was set by the index since; else the mirror's stands
  };
  // Where the parts of a round are filled on.
  struct Cursor {
    PageDelta* page;
    uint64_t* words;
    float* values;
    uint32_t words_done = 0;
    uint32_t values_done = 0;
  };

  uint64_t records() const;
  uint64_t words() const;
  uint64_t values(const PageChange& change) const;
  void prefetch(uint32_t page) const;
  // Appends the records, words and values of a page.
  void encode_page(const PageChange& change, Cursor& out) const;
  EpisodeDelta encode_episode(const EpisodeChange& change) const;

  Index& index_;
  Dirty::Reader reader_;
  std::vector<ShownPage> shown_pages_;
  std::vector<ShownEpisode> shown_episodes_;
  std::vector<uint32_t> changed_pages_;
  std::vector<uint32_t> changed_episodes_;
  // Of the last look():
  std::span<const std::shared_ptr<const Drawable>> steps_;
  bool with_priorities_ = false;
  std::vector<PageChange> pages_;
  std::vector<EpisodeChange> episodes_;
  size_t next_page_ = 0;
  size_t next_episode_ = 0;
};

/// A value as it is sent: the sign bit marks a step that was appended without a priority. It takes
/// the largest priority seen by then, which is the index's (the value) or the mirror's, if that is
/// ahead.
GEAR_HD inline float resolve_value(float sent, float largest) {
  if (std::bit_cast<uint32_t>(sent) >> 31 == 0) {
    return sent;
  }
  return largest > -sent ? largest : -sent;
}

}  // namespace gear::store
