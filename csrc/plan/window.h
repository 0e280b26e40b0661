#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/host_device.h"
#include "base/names.h"
#include "plan/cast.h"
#include "store/page_layout.h"

namespace gear::plan {

/// Where the rows of missing steps go.
///
///   steps wanted  -3 -2 -1  0  1        (the episode begins at -1 and ends after 0)
///   kBoth          .  . -1  0  .        every step in its own place
///   kHead          .  .  . -1  0        what is there moves to the end
///   kTail         -1  0  .  .  .        what is there moves to the front
enum class Pad : uint8_t { kBoth, kHead, kTail };
inline constexpr base::Names<Pad, 3> kPads{"[loader] pad", {"both", "head", "tail"}};

/// What an output delivers in place of a column, worked out from where a step stands in its
/// episode: whether the episode terminated there (bool), whether it ended there (bool), the step's
/// number in it (i64). A closing step has none of these.
enum class Derived : uint8_t { kTerminated, kIsLast, kStepIndex, kNone };
inline constexpr base::Names<Derived, 3> kDerived{"[loader] derived output",
                                                  {"terminated", "is_last", "step_index"}};

inline base::DType derived_dtype(Derived kind) {
  return kind == Derived::kStepIndex ? base::DType::kI64 : base::DType::kBool;
}

/// The column of what is derived: no closing step has it.
constexpr size_t kNoColumn = 64;

/// One tensor of a batch: steps [anchor + start, anchor + stop) of a column, never beyond the
/// anchor's episode.
struct Output {
  std::string name;
  size_t column = 0;
  int64_t start = 0;
  int64_t stop = 1;
  Pad pad = Pad::kBoth;
  bool time_axis = true;  ///< false: one step, delivered as [B, shape] in place of [B, 1, shape]
  std::optional<base::DType> dtype = std::nullopt;  ///< of the delivered tensor; the column's own
  float scale = 1.0F;                               ///< see cast.h
  Derived derived = Derived::kNone;                 ///< else `column` is kNoColumn

  uint64_t length() const { return static_cast<uint64_t>(stop - start); }
};

/// Throws InvalidArgument for: no output of a column, two of one name, an empty window, one that no
/// step of a buffer of `capacity` steps could ever fall into, a batch whose packed rows exceed 2^31
/// - 1, a conversion that is not offered.
void check_outputs(const std::vector<Output>& outputs, const store::Schema& schema,
                   uint64_t batch_size, uint64_t capacity);

/// Steps past the anchor that the outputs reach; what Index::steps takes. Whether a step is its
/// episode's last is known once another follows it, so kTerminated and kIsLast reach one further
/// than their windows.
uint64_t lookahead(const std::vector<Output>& outputs);

/// The steps of a window that exist: [first, first + count) of the episode fill the rows
/// [place, place + count) of the output's length() rows.
struct Extent {
  uint64_t first;
  uint32_t count;
  uint32_t place;
};

/// [begin, end): the episode's stored steps, of which `column` has one more where the episode's
/// closing_columns say so.
GEAR_HD inline Extent extent_of(uint64_t episode_begin, uint64_t episode_end,
                                uint64_t closing_columns, uint64_t anchor_step, size_t column,
                                int64_t start, int64_t stop, Pad pad) {
  const auto step = static_cast<int64_t>(anchor_step);
  const auto begin = static_cast<int64_t>(episode_begin);
  const uint64_t closing = column < kNoColumn ? closing_columns >> column & 1 : 0;
  const auto end = static_cast<int64_t>(episode_end + closing);
  const int64_t from = step + start > begin ? step + start : begin;
  const int64_t to = step + stop < end ? step + stop : end;
  if (to <= from) {
    return {0, 0, 0};
  }
  int64_t place = 0;
  if (pad == Pad::kBoth) {
    place = from - (step + start);
  }
  if (pad == Pad::kHead) {
    place = (stop - start) - (to - from);
  }
  return {static_cast<uint64_t>(from), static_cast<uint32_t>(to - from),
          static_cast<uint32_t>(place)};
}

}  // namespace gear::plan
