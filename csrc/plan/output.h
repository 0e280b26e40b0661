#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/dtype.h"
#include "base/names.h"
#include "plan/window.h"
#include "store/schema.h"

namespace gear::plan {

// What an output shows is a source. Each says which steps() of the anchor's episode it looks at,
// which are the rows that are planned, and its reach(): how many steps must follow an anchor before
// it may be drawn while its episode is open, none where that is below 0.

/// The steps of a column, each a row.
struct StepColumn {
  size_t column = 0;
  Window window;
  bool time_axis = true;  ///< false: one step, delivered as [B, shape] in place of [B, 1, shape]
  std::optional<base::DType> dtype = std::nullopt;  ///< of the delivered tensor; the column's own
  float scale = 1.0F;                               ///< see cast.h

  PlanWindow steps() const { return {window, uint64_t{1} << column}; }
  int64_t reach() const { return window.stop - 1; }
};

/// What no column holds, worked out from where a step stands in its episode: whether the episode
/// terminated there (bool), whether it ended there (bool), the step's number in it (i64).
enum class Derived : uint8_t { kTerminated, kIsLast, kStepIndex };
inline constexpr base::Names<Derived, 3> kDerived{"[loader] derived output",
                                                  {"terminated", "is_last", "step_index"}};

inline base::DType derived_dtype(Derived kind) {
  return kind == Derived::kStepIndex ? base::DType::kI64 : base::DType::kBool;
}

/// One of these of each step. A closing step has none.
struct Standing {
  Derived kind = Derived::kTerminated;
  Window window;
  bool time_axis = true;

  PlanWindow steps() const { return {window, 0}; }
  /// Whether a step is its episode's last is known once another follows it.
  int64_t reach() const { return kind == Derived::kStepIndex ? window.stop - 1 : window.stop; }
};

/// The discounted sum of a float32 column over the anchor and the n - 1 steps behind it, as fold.h
/// adds: one row an item, [B, shape], in a packed batch too. Steps behind the episode's end add
/// nothing, but for a closing step that has the column, as in a window of it.
struct Fold {
  size_t column = 0;
  uint32_t n = 1;
  float factor = 1.0F;

  PlanWindow steps() const { return {{0, n}, uint64_t{1} << column}; }
  int64_t reach() const { return int64_t{n} - 1; }
};

using Source = std::variant<StepColumn, Standing, Fold>;

/// One tensor of a batch.
struct Output {
  std::string name;
  Source source;

  Output(std::string output_name, Source of) : name(std::move(output_name)), source(of) {}
  /// Of a column, as it is stored.
  Output(std::string output_name, size_t column, int64_t start, int64_t stop, Pad pad = Pad::kBoth,
         bool time_axis = true)
      : Output(std::move(output_name), StepColumn{column, {start, stop, pad}, time_axis}) {}

  PlanWindow steps() const {
    return std::visit([](const auto& of) { return of.steps(); }, source);
  }
  int64_t reach() const {
    return std::visit([](const auto& of) { return of.reach(); }, source);
  }
};

/// All that an output is, in words: those of two are equal where the outputs are.
std::string in_words(const Output& output);

/// Throws InvalidArgument for: no output of a column, two of one name, an empty window, one that no
/// step of a buffer of `capacity` steps could ever fall into, a batch whose packed rows exceed 2^31
/// - 1, a conversion that is not offered, a fold of another dtype than float32, of more than
/// `capacity` steps, or by a factor that is not finite.
void check_outputs(const std::vector<Output>& outputs, const store::Schema& schema,
                   uint64_t batch_size, uint64_t capacity);

/// Steps past the anchor that the outputs reach; what Index::steps takes.
uint64_t lookahead(const std::vector<Output>& outputs);

}  // namespace gear::plan
