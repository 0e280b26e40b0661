#include "select/group/group_cut.h"

#include <algorithm>
#include <tuple>

#include "base/errors.h"

namespace gear::select {
namespace {

// First place of chunk c in a window of so many keys.
uint64_t chunk_begin(uint64_t keys, uint64_t c) {
  return keys <= GroupCut::kSamples ? std::min(c, keys) : keys * c / GroupCut::kSamples;
}

}  // namespace

GroupCut::Window GroupCut::window_of(std::span<const uint64_t> keys, uint64_t begin, uint64_t end) {
  Window window{begin, end};
  for (uint64_t c = 0; c < std::min<uint64_t>(kSamples, end - begin); ++c) {
    window[2 + c] = keys[begin + chunk_begin(end - begin, c + 1) - 1];
  }
  return window;
}

GroupCut::GroupCut(std::span<const uint64_t> keys, uint32_t rank, uint32_t size, bool reversed)
    : keys_(keys), rank_(rank), size_(size), reversed_(reversed), numbers_(size * kNumbers) {}

bool GroupCut::narrow(uint64_t items, std::vector<uint64_t>& counts) {
  uint64_t sure = 0;
  uint64_t open = 0;
  bool exact = true;
  samples_.clear();
  counts.resize(size_);
  for (uint32_t r = 0; r < size_; ++r) {
    const uint64_t begin = at(r, 0);
    const uint64_t keys = at(r, 1) - begin;
    counts[r] = begin;
    sure += begin;
    open += keys;
    exact = exact && keys <= kSamples;
    for (uint64_t c = 0; c < std::min<uint64_t>(kSamples, keys); ++c) {
      const uint64_t end = chunk_begin(keys, c + 1);
      const uint64_t behind = c + 1 < kSamples ? chunk_begin(keys, c + 2) - end : 0;
      samples_.push_back({at(r, 2 + c), turn(r), r, begin + end - 1, end - chunk_begin(keys, c),
                          behind - std::min<uint64_t>(behind, 1)});
    }
  }
  GEAR_CHECK(sure <= items);
  const uint64_t wanted = items - sure;
  if (open <= wanted) {
    for (uint32_t r = 0; r < size_; ++r) {
      counts[r] = at(r, 1);
    }
    return true;
  }
  std::ranges::sort(samples_, {},
                    [](const Sample& one) { return std::tuple(one.key, one.turn, one.place); });
  if (exact) {
    for (uint64_t i = 0; i < wanted; ++i) {
      ++counts[samples_[i].rank];
    }
    return true;
  }
  // Up to the i-th sample there are `least` open keys or more, and `slack` more than that at most:
  // of every rank those behind its last sample, before its next one.
  uint64_t least = 0;
  uint64_t slack = 0;
  for (uint32_t r = 0; r < size_; ++r) {
    const uint64_t first = chunk_begin(at(r, 1) - at(r, 0), 1);
    slack += first - std::min<uint64_t>(first, 1);
  }
  uint64_t begin = at(rank_, 0);
  uint64_t end = at(rank_, 1);
  for (const Sample& sample : samples_) {
    least += sample.chunk;
    slack = slack + sample.next - (sample.chunk - 1);
    if (least + slack <= wanted) {
      begin = std::max(begin, own_up_to(sample));
    }
    if (least >= wanted) {
      end = std::min(end, own_up_to(sample));
      break;
    }
  }
  own_ = window_of(keys_, begin, std::max(begin, end));
  return false;
}

// How many of this rank's keys go no later than the sample.
uint64_t GroupCut::own_up_to(const Sample& sample) const {
  if (sample.rank == rank_) {
    return sample.place + 1;
  }
  const auto found = turn(rank_) < sample.turn ? std::ranges::upper_bound(keys_, sample.key)
                                               : std::ranges::lower_bound(keys_, sample.key);
  return static_cast<uint64_t>(found - keys_.begin());
}

void GroupCut::number(std::span<const uint64_t> keys, std::span<const uint64_t> counts,
                      std::vector<uint32_t>& own) const {
  own.resize(counts[rank_]);
  for (uint32_t i = 0; i < own.size(); ++i) {
    own[i] = i;
  }
  for (uint32_t r = 0; r < size_; ++r) {
    const auto theirs = keys.first(counts[r]);
    keys = keys.subspan(counts[r]);
    if (r == rank_) {
      continue;
    }
    uint32_t before = 0;
    for (uint32_t i = 0; i < own.size(); ++i) {
      while (before < theirs.size() &&
             (theirs[before] < keys_[i] || (theirs[before] == keys_[i] && turn(r) < turn(rank_)))) {
        ++before;
      }
      own[i] += before;
    }
  }
}

}  // namespace gear::select
