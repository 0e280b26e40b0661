#include "plan/batch.h"

#include "base/errors.h"
#include "plan/fold.h"

namespace gear::plan {

namespace {

constexpr uint64_t kMaxBytes = uint64_t{1} << 62;  // far from where sums of offsets wrap

bool same_steps(const PlanWindow& a, const PlanWindow& b) {
  return a.start == b.start && a.stop == b.stop && a.pad == b.pad &&
         (a.stop <= 1 || a.closing == b.closing);
}

std::vector<float> powers_of(const Fold& fold) {
  std::vector<float> powers(fold.n, 1.0F);
  for (size_t k = 1; k < powers.size(); ++k) {
    powers[k] = next_power(powers[k - 1], fold.factor);
  }
  return powers;
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
  const auto find_window = [this](const PlanWindow& window) {
    size_t w = 0;
    while (w < windows.size() && !same_steps(windows[w].window, window)) {
      ++w;
    }
    if (w == windows.size()) {
      windows.push_back({window, {}, false, 0, 0, 0});
    }
    return w;
  };
  ids = place(size, sizeof(int64_t));
  probabilities = place(size, sizeof(float));
  weights = place(size, sizeof(float));
  for (const Output& output : batch_outputs) {
    if (std::holds_alternative<Standing>(output.source)) {
      continue;
    }
    const PlanWindow window = output.steps();
    const size_t w = find_window(window);
    windows[w].outputs.push_back(outputs.size());
    window_of.push_back(w);
    if (const auto* const fold = std::get_if<Fold>(&output.source)) {
      const store::Column& column = schema[fold->column];
      GEAR_CHECK(column.dtype == base::DType::kF32);
      outputs.push_back({fold->column, false, 1.0F, window.length(), 1, *fold, powers_of(*fold)});
      dtypes.push_back(column.dtype);
      casts.push_back(Cast::kNone);
      row_bytes.push_back(column.step_bytes());
      continue;
    }
    const auto& of = std::get<StepColumn>(output.source);
    const store::Column& column = schema[of.column];
    outputs.push_back(
        {of.column, of.time_axis, of.scale, window.length(), window.length(), {}, {}});
    dtypes.push_back(of.dtype.value_or(column.dtype));
    casts.push_back(cast_of(column.dtype, of, output.name, column.name));
    row_bytes.push_back(column.step_bytes() / dtype_bytes(column.dtype) *
                        dtype_bytes(dtypes.back()));
  }
  for (const Output& output : batch_outputs) {
    if (const auto* const standing = std::get_if<Standing>(&output.source)) {
      const size_t w = find_window(output.steps());
      windows[w].derives = true;
      derived.push_back({standing->kind, standing->time_axis, w, 0});
    }
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
    const uint64_t row_size = base::dtype_bytes(derived_dtype(one.kind));
    one.data = place(size * windows[one.window].window.length(), row_size);
  }
  for (size_t o = 0; o < outputs.size(); ++o) {
    data.push_back(place(size * outputs[o].delivered_rows, row_bytes[o]));
  }
}

}  // namespace gear::plan
