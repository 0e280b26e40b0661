#include "plan/plan.h"

#include <algorithm>
#include <cstring>

#include "base/threads/prefetch.h"
#include "plan/window_runs.h"

namespace gear::plan {
namespace {

// Fills in lengths and masks or cu_seqlens of one window, and the rows that it fills; makes its
// runs. Returns how many steps there are.
uint64_t plan_window(const WindowRuns& window, const BatchLayout::SharedWindow& shared,
                     uint64_t page_steps, const std::vector<store::Anchor>& anchors, Batch& batch,
                     Plan& plan) {
  const bool packed = batch.layout->packed;
  const auto length = static_cast<uint32_t>(shared.window.length());
  int32_t* const lengths = batch.at<int32_t>(shared.lengths);
  int32_t* const cu_seqlens = batch.at<int32_t>(shared.cu_seqlens);
  bool* mask = batch.at<bool>(shared.mask);
  const uint64_t items = anchors.size();
  plan.begin_window(most_runs(items, length, page_steps) + 2 * items);  // zeros at either end
  Run* const begin = plan.room();
  Run* end = begin;
  uint64_t steps = 0;
  uint32_t rows = 0;
  for (uint64_t i = 0; i < items; ++i) {
    Extent extent{0, length, 0};
    if (window.lies_in_page(anchors[i])) {
      *end++ = window.in_page(anchors[i], rows);
    } else {
      extent = window.extent(anchors[i]);
      end = window.add(anchors[i], extent, packed ? rows : rows + extent.place, end);
    }
    lengths[i] = static_cast<int32_t>(extent.count);
    steps += extent.count;
    if (packed) {
      cu_seqlens[i] = static_cast<int32_t>(rows);
      rows += extent.count;
      continue;
    }
    if (extent.count != length) {
      write_mask(length, extent.place, extent.count, mask);
      end = add_zeros(length, extent.place, extent.count, rows, end);
    } else if (length == 1) {
      *mask = true;  // std::fill_n would call for one byte
    } else {
      std::fill_n(mask, length, true);
    }
    mask += length;
    rows += length;
  }
  if (packed) {
    cu_seqlens[items] = static_cast<int32_t>(rows);
  }
  plan.fill(static_cast<uint64_t>(end - begin));
  batch.rows.push_back(rows);
  return steps;
}

}  // namespace

void Plan::reset() {
  size_ = 0;
  begins_.clear();
}

void Plan::begin_window(uint64_t most_runs) {
  begins_.push_back(size_);
  if (size_ + most_runs <= capacity_) {
    return;
  }
  capacity_ = std::max(size_ + most_runs, 2 * capacity_);
  std::unique_ptr<Run[]> larger(new Run[capacity_]);
  std::copy_n(runs_.get(), size_, larger.get());
  runs_ = std::move(larger);
}

void make_plan(const store::Index& index, const store::PageLayout& pages,
               const select::Selection& selection, Batch& batch, Plan& plan) {
  const BatchLayout& layout = *batch.layout;
  const uint64_t items = selection.size();
  batch.items = items;
  batch.bytes = 0;
  batch.rows.clear();
  std::memcpy(batch.at<float>(layout.probabilities), selection.probabilities.data(),
              items * sizeof(float));
  std::memcpy(batch.at<float>(layout.weights), selection.weights.data(), items * sizeof(float));
  // Windows that may leave the anchor's page, and derived outputs, read the episode.
  const bool reads_episodes =
      !layout.derived.empty() ||
      std::ranges::any_of(layout.windows, [](const BatchLayout::SharedWindow& shared) {
        return shared.window.start < 0 || shared.window.stop > 1;
      });
  int64_t* ids = batch.at<int64_t>(layout.ids);
  for (uint64_t i = 0; i < items; ++i) {
    const store::Anchor anchor = selection.anchors[i];
    ids[i] = index.id(anchor, selection.unit);
    if (reads_episodes) {
      const store::Episode& episode = index.episode(index.page(anchor.page).episode);
      base::prefetch(&episode.begin);
      base::prefetch(&episode.closing_columns);
    }
  }
  plan.reset();
  for (const BatchLayout::SharedWindow& shared : layout.windows) {
    const WindowRuns window(index, pages.page_steps, shared.window);
    const uint64_t steps =
        plan_window(window, shared, pages.page_steps, selection.anchors, batch, plan);
    for (const size_t o : shared.outputs) {
      batch.bytes += steps * pages.step_bytes[layout.outputs[o].column];
    }
  }
  for (const BatchLayout::DerivedOutput& derived : layout.derived) {
    const WindowRuns window(index, pages.page_steps, layout.windows[derived.window].window);
    for (uint64_t i = 0; i < items; ++i) {
      const store::Anchor anchor = selection.anchors[i];
      const Extent extent = window.extent(anchor);
      write_derived(derived, window.standing(anchor, extent), extent.place, extent.count, i, batch);
    }
  }
}

}  // namespace gear::plan
