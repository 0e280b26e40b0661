#include "plan/window.h"

#include <set>

#include "base/errors.h"

namespace gear::plan {

namespace {

constexpr uint64_t kMaxRows = (uint64_t{1} << 31) - 1;  // what an int32 of cu_seqlens holds

}  // namespace

void check_outputs(const std::vector<Output>& outputs, const store::Schema& schema,
                   uint64_t batch_size, uint64_t capacity) {
  const auto is_derived = [](const Output& one) { return one.derived != Derived::kNone; };
  if (std::all_of(outputs.begin(), outputs.end(), is_derived)) {
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
    if (!is_derived(output)) {
      GEAR_CHECK(output.column < schema.size());
      cast_of(schema[output.column].dtype, output, schema[output.column].name);
    }
    const std::string window = base::cat("[loader] output '", output.name, "': window [",
                                         output.start, ", ", output.stop, ")");
    if (output.start >= output.stop) {
      throw base::InvalidArgument(window + " is empty: start must be below stop");
    }
    if (output.start > reach || output.stop < -reach) {
      throw base::InvalidArgument(base::cat(window, " is out of reach: a buffer of ", capacity,
                                            " steps has no step that far from an anchor"));
    }
    const uint64_t length =
        static_cast<uint64_t>(output.stop) - static_cast<uint64_t>(output.start);
    if (length > kMaxRows / batch_size) {
      throw base::InvalidArgument(base::cat(window, " times batch_size ", batch_size,
                                            " is 2^31 rows or more: lower one of them"));
    }
  }
}

uint64_t lookahead(const std::vector<Output>& outputs) {
  int64_t furthest = 0;
  for (const Output& output : outputs) {
    const bool next_tells =
        output.derived == Derived::kTerminated || output.derived == Derived::kIsLast;
    furthest = std::max(furthest, next_tells ? output.stop : output.stop - 1);
  }
  return static_cast<uint64_t>(furthest);
}

}  // namespace gear::plan
