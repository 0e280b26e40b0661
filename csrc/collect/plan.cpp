#include "collect/plan.h"

#include <algorithm>
#include <cstring>

namespace gear::collect {
namespace {

// The runs of one window: the steps [first, first + count) of an episode, page by page.
class WindowRuns {
 public:
  WindowRuns(const store::Index& index, const store::PageLayout& pages, Plan& plan)
      : index_(index), pages_(pages), plan_(plan) {}

  void add(uint32_t anchor_page, size_t column, const Extent& extent, uint64_t target) {
    const uint64_t page_steps = pages_.page_steps;
    uint32_t p = anchor_page;
    uint64_t page_first = index_.page(p).first_step;
    while (extent.first < page_first) {
      p = index_.page(p).previous;
      page_first -= page_steps;
    }
    while (extent.first >= page_first + page_steps) {
      p = index_.page(p).next;
      page_first += page_steps;
    }
    const uint64_t step_bytes = pages_.step_bytes[column];
    uint64_t row = extent.first - page_first;
    uint64_t left = extent.count;
    for (;;) {
      const uint64_t rows = std::min(left, page_steps - row);
      plan_.runs.push_back({pages_.offset(p, column, row), target, rows * step_bytes});
      left -= rows;
      if (left == 0) break;
      target += rows * step_bytes;
      row = 0;
      p = index_.page(p).next;
    }
    plan_.copied_bytes += extent.count * step_bytes;
  }

 private:
  const store::Index& index_;
  const store::PageLayout& pages_;
  Plan& plan_;
};

void add_zeros(Plan& plan, uint64_t target, uint64_t bytes) {
  if (bytes > 0) plan.runs.push_back({Run::kZeros, target, bytes});
}

}  // namespace

void make_plan(const store::Index& index, const store::PageLayout& pages,
               const select::Selection& selection, Batch& batch, Plan& plan) {
  const BatchLayout& layout = *batch.layout;
  const uint64_t items = selection.size();
  batch.items = items;
  batch.rows.assign(layout.outputs.size(), 0);
  std::memcpy(batch.at<float>(layout.probabilities), selection.probabilities.data(),
              items * sizeof(float));
  std::memcpy(batch.at<float>(layout.weights), selection.weights.data(), items * sizeof(float));
  int64_t* ids = batch.at<int64_t>(layout.ids);
  WindowRuns window_runs(index, pages, plan);

  for (const store::Anchor& anchor : selection.anchors) {
    __builtin_prefetch(&index.episode(index.page(anchor.page).episode));
  }
  for (uint64_t i = 0; i < items; ++i) {
    const store::Anchor anchor = selection.anchors[i];
    const store::Page& page = index.page(anchor.page);
    const store::Episode& episode = index.episode(page.episode);
    const uint64_t step = page.first_step + anchor.row;
    ids[i] = index.id(anchor, selection.unit);
    for (size_t o = 0; o < layout.outputs.size(); ++o) {
      const Output& output = layout.outputs[o];
      const BatchLayout::Field& field = layout.fields[o];
      const uint64_t length = output.length();
      const Extent extent =
          extent_of(episode, step, output.column, output.start, output.stop, output.pad);
      batch.at<int32_t>(field.lengths)[i] = static_cast<int32_t>(extent.count);
      if (layout.packed) {
        batch.at<int32_t>(field.cu_seqlens)[i] = static_cast<int32_t>(batch.rows[o]);
        const uint64_t target = field.data + batch.rows[o] * field.step_bytes;
        if (extent.count > 0) window_runs.add(anchor.page, output.column, extent, target);
        batch.rows[o] += extent.count;
        continue;
      }
      const uint64_t target = field.data + i * length * field.step_bytes;
      const uint64_t after = extent.place + extent.count;
      bool* mask = batch.at<bool>(field.mask) + i * length;
      std::memset(mask, 0, length);
      std::memset(mask + extent.place, 1, extent.count);
      add_zeros(plan, target, extent.place * field.step_bytes);
      if (extent.count > 0) {
        window_runs.add(anchor.page, output.column, extent,
                        target + extent.place * field.step_bytes);
      }
      add_zeros(plan, target + after * field.step_bytes, (length - after) * field.step_bytes);
      batch.rows[o] += length;
    }
  }
  if (layout.packed) {
    for (size_t o = 0; o < layout.outputs.size(); ++o) {
      batch.at<int32_t>(layout.fields[o].cu_seqlens)[items] = static_cast<int32_t>(batch.rows[o]);
    }
  }
  batch.bytes = plan.copied_bytes;
}

}  // namespace gear::collect
