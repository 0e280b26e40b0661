#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "store/episode.h"

// What a shard publishes of its index, for readers that take no lock and ask nobody: processes that
// map this memory, and network cards.
//
//     masses, level by level | PublishedPage, by page | PublishedEpisode, by slot
//
// It changes while it is read. A mass is one word. A record ends with a seal over its other words,
// so that one that was read torn is known.
namespace gear::store {

/// Of a page: which steps lie there. Changes with the page's use alone, not with each step.
struct PublishedPage {
  uint32_t generation = 0;
  uint32_t episode = kNone;  ///< its slot
  uint32_t previous = kNone;
  uint32_t next = kNone;
  uint64_t uid = 0;  ///< of its episode; 0: free
  uint64_t first_step = 0;
  uint64_t seal = 0;

  /// The first word: another one once the page holds other steps.
  uint64_t use() const { return uint64_t{episode} << 32 | generation; }
};

/// Of an episode, as Episode has it; uid 0 in a free slot.
struct PublishedEpisode {
  uint64_t uid = 0;
  uint64_t begin = 0;
  uint64_t end = 0;
  uint64_t closing_columns = 0;
  uint64_t state = 0;  ///< an EpisodeState
  uint64_t seal = 0;

  bool ended() const { return state != static_cast<uint64_t>(EpisodeState::kOpen); }
};

template <class Record>
using WordsOf = std::array<uint64_t, sizeof(Record) / sizeof(uint64_t)>;

/// The seal of a record with these words; the last of them does not count.
template <class Record>
uint64_t seal_of(const Record& record) {
  static_assert(std::is_trivially_copyable_v<Record> && sizeof(Record) % sizeof(uint64_t) == 0);
  const auto words = std::bit_cast<WordsOf<Record>>(record);
  uint64_t seal = 0x9e3779b97f4a7c15;
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    seal = (seal ^ words[i]) * 0xff51afd7ed558ccd;
    seal ^= seal >> 32;
  }
  return seal;
}

/// Whether a record came as it was written, and not torn.
template <class Record>
bool whole(const Record& record) {
  return record.seal == seal_of(record);
}

/// Where what is published lies. The masses are the steps that may be drawn, counted by page, and
/// their sums over 64 of the level below, up to a level of at most 1024.
struct PublishedLayout {
  static constexpr uint64_t kFanout = 64;
  static constexpr uint64_t kMostTop = 1024;

  struct Level {
    uint64_t begin;  ///< byte
    uint64_t count;  ///< masses
  };

  explicit PublishedLayout(uint64_t num_pages);

  std::vector<Level> levels;  ///< the first: by page
  uint64_t pages = 0;         ///< first byte of their records
  uint64_t episodes = 0;      ///< likewise; as many as pages
  uint64_t bytes = 0;

  const Level& top() const { return levels.back(); }
  uint64_t page(uint64_t page) const { return pages + page * sizeof(PublishedPage); }
  uint64_t episode(uint64_t slot) const { return episodes + slot * sizeof(PublishedEpisode); }
};

}  // namespace gear::store
