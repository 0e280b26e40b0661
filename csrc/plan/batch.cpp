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

BatchLayout::BatchLayout(const store::Schema& schema, std::vector<Output> batch_outputs,
                         uint64_t size, bool pack)
    : outputs(std::move(batch_outputs)), batch_size(size), packed(pack) {
  // Room for `count` entries.
  const auto place = [this](uint64_t count, uint64_t entry_bytes) {
    const uint64_t offset = bytes;
    uint64_t field_bytes = 0;
    if (__builtin_mul_overflow(count, entry_bytes, &field_bytes) ||
        field_bytes > kMaxBytes - bytes) {
      throw base::InvalidArgument(
          base::cat("[collect] batches of ", batch_size, " items and ", outputs.size(),
                    " outputs hold 2^62 bytes or more: lower batch_size, or the windows' lengths"));
    }
    bytes += (field_bytes + 63) / 64 * 64;
    return offset;
  };
  ids = place(size, sizeof(int64_t));
  probabilities = place(size, sizeof(float));
  weights = place(size, sizeof(float));
  for (size_t o = 0; o < outputs.size(); ++o) {
    size_t w = 0;
    while (w < windows.size() && !same_steps(windows[w].window, outputs[o])) {
      ++w;
    }
    if (w == windows.size()) {
      windows.push_back({outputs[o], {}, 0, 0, 0});
    }
    windows[w].outputs.push_back(o);
    window_of.push_back(w);
    const store::Column& column = schema[outputs[o].column];
    dtypes.push_back(outputs[o].dtype.value_or(column.dtype));
    casts.push_back(cast_of(column.dtype, outputs[o], column.name));
    row_bytes.push_back(column.step_bytes() / dtype_bytes(column.dtype) *
                        dtype_bytes(dtypes.back()));
  }
  for (SharedWindow& shared : windows) {
    shared.lengths = place(size, sizeof(int32_t));
    if (packed) {
      shared.cu_seqlens = place(size + 1, sizeof(int32_t));
    } else {
      shared.mask = place(size, shared.window.length());
    }
  }
  for (size_t o = 0; o < outputs.size(); ++o) {
    data.push_back(place(size * outputs[o].length(), row_bytes[o]));
  }
}

}  // namespace gear::plan
