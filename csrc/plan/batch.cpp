#include "plan/batch.h"

#include "base/errors.h"

namespace gear::plan {

namespace {

constexpr uint64_t kMaxBytes = uint64_t{1} << 62;  // far from where sums of offsets wrap

bool same_steps(const Output& a, const Output& b) {
  return a.start == b.start && a.stop == b.stop && a.pad == b.pad &&
         (a.stop <= 1 || a.column == b.column);
}

}  // namespace

BatchLayout::BatchLayout(const store::Schema& schema, const std::vector<Output>& batch_outputs,
                         uint64_t size, bool pack)
    : batch_size(size), packed(pack) {
  // Room for `count` entries.
  const auto place = [this](uint64_t count, uint64_t entry_bytes) {
    const uint64_t offset = bytes;
    uint64_t field_bytes = 0;
    if (__builtin_mul_overflow(count, entry_bytes, &field_bytes) ||
        field_bytes > kMaxBytes - bytes) {
      throw base::InvalidArgument(
          base::cat("[loader] batches of ", batch_size, " items and ", outputs.size(),
                    " outputs hold 2^62 bytes or more: lower batch_size, or the windows' lengths"));
    }
    bytes += (field_bytes + 63) / 64 * 64;
    return offset;
  };
  const auto find_window = [this](const Output& output) {
    size_t w = 0;
    while (w < windows.size() && !same_steps(windows[w].window, output)) {
      ++w;
    }
    if (w == windows.size()) {
      windows.push_back({output, {}, false, 0, 0, 0});
    }
    return w;
  };
  ids = place(size, sizeof(int64_t));
  probabilities = place(size, sizeof(float));
  weights = place(size, sizeof(float));
  for (const Output& output : batch_outputs) {
    if (output.derived != Derived::kNone) {
      continue;
    }
    const size_t w = find_window(output);
    windows[w].outputs.push_back(outputs.size());
    window_of.push_back(w);
    outputs.push_back(output);
    const store::Column& column = schema[output.column];
    dtypes.push_back(output.dtype.value_or(column.dtype));
    casts.push_back(cast_of(column.dtype, output, column.name));
    row_bytes.push_back(column.step_bytes() / dtype_bytes(column.dtype) *
                        dtype_bytes(dtypes.back()));
  }
  for (const Output& output : batch_outputs) {
    if (output.derived == Derived::kNone) {
      continue;
    }
    const size_t w = find_window(output);
    windows[w].derives = true;
    derived.push_back({output, w, 0});
  }
  for (SharedWindow& shared : windows) {
    shared.lengths = place(size, sizeof(int32_t));
    if (packed) {
      shared.cu_seqlens = place(size + 1, sizeof(int32_t));
    } else {
      shared.mask = place(size, shared.window.length());
    }
  }
  for (DerivedOutput& one : derived) {
    const uint64_t row_size = base::dtype_bytes(derived_dtype(one.output.derived));
    one.data = place(size * one.output.length(), row_size);
  }
  for (size_t o = 0; o < outputs.size(); ++o) {
    data.push_back(place(size * outputs[o].length(), row_bytes[o]));
  }
}

}  // namespace gear::plan
