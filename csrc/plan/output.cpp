#include "plan/output.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <set>

#include "base/errors.h"
#include "plan/cast.h"

namespace gear::plan {

namespace {

constexpr uint64_t kMaxRows = (uint64_t{1} << 31) - 1;  // what an int32 of cu_seqlens holds

bool is_standing(const Output& output) { return std::holds_alternative<Standing>(output.source); }

void check_fold(const Fold& fold, const std::string& name, const store::Schema& schema,
                uint64_t capacity) {
  const auto refuse = [&](const auto&... why) {
    throw base::InvalidArgument(base::cat("[loader] output '", name, "': ", why...));
  };
  GEAR_CHECK(fold.column < schema.size());
  const store::Column& column = schema[fold.column];
  if (column.dtype != base::DType::kF32) {
    refuse("column '", column.name, "' is ", base::kDTypes.name(column.dtype),
           ": a discounted sum is made of float32; sum others after the batch is delivered");
  }
  if (fold.n < 1 || fold.n > capacity) {
    refuse("a discounted sum over ", fold.n, " steps: 1 to ", capacity,
           " are allowed, the capacity of the buffer");
  }
  if (!std::isfinite(fold.factor)) {
    refuse("a discounted sum by factor ", fold.factor, ": a finite number is allowed");
  }
}

// In as few digits as tell it from every other float, whatever the locale.
std::string in_digits(float value) {
  std::array<char, 32> text{};
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), value);
  GEAR_CHECK(error == std::errc());
  return {text.data(), end};
}

std::string window_in_words(const Window& window, bool time_axis) {
  return base::cat(" [", window.start, ", ", window.stop, ") pad ", static_cast<int>(window.pad),
                   " axis ", time_axis);
}

}  // namespace

std::string in_words(const Output& output) {
  if (const auto* const column = std::get_if<StepColumn>(&output.source)) {
    return base::cat(output.name, " = column ", column->column,
                     window_in_words(column->window, column->time_axis), " scale ",
                     in_digits(column->scale), " ",
                     column->dtype ? base::kDTypes.name(*column->dtype) : "as stored");
  }
  if (const auto* const standing = std::get_if<Standing>(&output.source)) {
    return base::cat(output.name, " = ", kDerived.name(standing->kind),
                     window_in_words(standing->window, standing->time_axis));
  }
  const Fold& fold = std::get<Fold>(output.source);
  return base::cat(output.name, " = column ", fold.column, " summed over ", fold.n, " by ",
                   in_digits(fold.factor));
}

void check_outputs(const std::vector<Output>& outputs, const store::Schema& schema,
                   uint64_t batch_size, uint64_t capacity) {
  if (std::all_of(outputs.begin(), outputs.end(), is_standing)) {
    throw base::InvalidArgument("[loader] no output of a column given: name at least one");
  }
  if (batch_size < 1 || batch_size > kMaxRows) {
    throw base::InvalidArgument(
        base::cat("[loader] batch_size ", batch_size, ": 1 to ", kMaxRows, " are allowed"));
  }
  const auto reach = static_cast<int64_t>(capacity);
  std::set<std::string_view> names;
  for (const Output& output : outputs) {
    if (!names.insert(output.name).second) {
      throw base::InvalidArgument(base::cat("[loader] output '", output.name, "' is given twice"));
    }
    if (const auto* const of = std::get_if<StepColumn>(&output.source)) {
      GEAR_CHECK(of->column < schema.size());
      cast_of(schema[of->column].dtype, *of, output.name, schema[of->column].name);
    } else if (const auto* const fold = std::get_if<Fold>(&output.source)) {
      check_fold(*fold, output.name, schema, capacity);
    }
    const Window window = output.steps();
    const std::string shown = base::cat("[loader] output '", output.name, "': window [",
                                        window.start, ", ", window.stop, ")");
    if (window.start >= window.stop) {
      throw base::InvalidArgument(shown + " is empty: start must be below stop");
    }
    if (window.start > reach || window.stop < -reach) {
      throw base::InvalidArgument(base::cat(shown, " is out of reach: a buffer of ", capacity,
                                            " steps has no step that far from an anchor"));
    }
    if (window.length() > kMaxRows / batch_size) {
      throw base::InvalidArgument(base::cat(shown, " times batch_size ", batch_size,
                                            " is 2^31 rows or more: lower one of them"));
    }
  }
}

uint64_t lookahead(const std::vector<Output>& outputs) {
  int64_t furthest = 0;
  for (const Output& output : outputs) {
    furthest = std::max(furthest, output.reach());
  }
  return static_cast<uint64_t>(furthest);
}

}  // namespace gear::plan
