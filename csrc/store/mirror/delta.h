#pragma once

#include <bit>
#include <cstdint>
#include <span>

#include "base/host_device.h"
#include "store/index/change_log.h"
#include "store/index/index.h"

/// What a mirror is sent of an index: records of pages and episodes that changed. Plain data and
/// arithmetic, for the host that encodes it and the GPU (or a test) that applies it.

namespace gear::store {

/// Rows [begin, end) of a page, at most kMaxRows of them, and, in the first record of a page, the
/// page itself. Rows before `kept` keep the priority that the mirror has; those of [kept,
/// page.rows) take values[first_value + row - max(begin, kept)].
struct alignas(64) PageDelta {
  static constexpr uint32_t kMaxRows = 1024;

  Page page;
  uint32_t number;
  uint32_t first_value;
  uint16_t begin;
  uint16_t end;
  uint16_t kept;
  uint16_t drawable;  ///< steps that may be drawn
  bool first;
  bool head;  ///< the page is the head of an episode that may be drawn as a whole
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

/// One copy's worth: the three parts lie behind each other.
struct DeltaRound {
  uint64_t num_pages = 0;
  uint64_t num_episodes = 0;
  uint64_t num_values = 0;

  GEAR_HD uint64_t episodes_offset() const { return num_pages * sizeof(PageDelta); }
  GEAR_HD uint64_t values_offset() const {
    return episodes_offset() + num_episodes * sizeof(EpisodeDelta);
  }
  uint64_t bytes() const { return values_offset() + num_values * sizeof(float); }
};

/// Goes through a log once, round by round.
class DeltaEncoder {
 public:
  /// `with_priorities`: rows and their values are sent, else pages and episodes alone.
  /// Of what `drawable` has, which told the log.
  DeltaEncoder(const Index& index, const Drawable& drawable, const ChangeLog& log,
               bool with_priorities);

  bool done() const {
    return next_page_ == log_.pages().size() && next_episode_ == log_.episodes().size();
  }
  /// Fills `out` with as much as fits. Room for one page of kMaxPageSteps (256 KiB) is enough.
  DeltaRound next(std::span<std::byte> out);

 private:
  // Rows of a page whose priority, sign or weight may have changed.
  struct Rows {
    uint64_t begin;
    uint64_t end;

    uint64_t num_records() const {
      return begin == end ? 1 : (end - begin + PageDelta::kMaxRows - 1) / PageDelta::kMaxRows;
    }
  };
  Rows rows_of(const ChangeLog::PageChange& change) const;
  // Of a page, how many rows in [begin, end) are sent.
  static uint64_t num_values(const ChangeLog::PageChange& change, const Page& page, uint64_t begin,
                             uint64_t end);
  // Appends the records and values of a page.
  Page seen(uint32_t page) const;
  void encode_page(const ChangeLog::PageChange& change, PageDelta*& record, float* values,
                   uint32_t& values_done) const;
  EpisodeDelta encode_episode(uint32_t episode) const;

  const Index& index_;
  const Drawable& drawable_;
  const ChangeLog& log_;
  bool with_priorities_;
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
