#include "plan/plan.h"

#include <algorithm>
#include <cstring>

#include "base/threads/touch.h"
#include "plan/window_runs.h"

namespace gear::plan {
namespace {

// Plans one window for all items of a batch.
class WindowPlanner {
 public:
  WindowPlanner(const WindowRuns& runs, const BatchLayout& layout,
                const BatchLayout::SharedWindow& shared, Batch& batch, Plan& plan)
      : runs_(runs),
        length_(static_cast<uint32_t>(shared.window.length())),
        packed_(layout.packed),
        lengths_(batch.at<int32_t>(shared.lengths)),
        mask_(batch.at<bool>(shared.mask)),
        cu_seqlens_(batch.at<int32_t>(shared.cu_seqlens)),
        plan_(plan) {}

  void add_item(uint64_t item, store::Anchor anchor) {
    const WindowRuns::Steps steps = runs_.steps(anchor);
    const Extent& extent = steps.extent;
    lengths_[item] = static_cast<int32_t>(extent.count);
    steps_ += extent.count;
    if (packed_) {
      cu_seqlens_[item] = static_cast<int32_t>(rows_);
      if (extent.count > 0) {
        runs_.add(steps, rows_, plan_);
      }
      rows_ += extent.count;
      return;
    }
    bool* mask = mask_ + item * length_;
    if (extent.count == length_) {
      if (length_ == 1) {
        *mask = true;  // std::fill_n would call for one byte
      } else {
        std::fill_n(mask, length_, true);
      }
      runs_.add(steps, rows_, plan_);
    } else {
      write_mask(length_, extent.place, extent.count, mask);
      if (extent.count > 0) {
        runs_.add(steps, rows_ + extent.place, plan_);
      }
      add_zeros(length_, extent.place, extent.count, rows_, plan_);
    }
    rows_ += length_;
  }

  // Rows of data the window fills; steps copied from the store.
  uint64_t finish(uint64_t items) {
    if (packed_) {
      cu_seqlens_[items] = static_cast<int32_t>(rows_);
    }
    return rows_;
  }
  uint64_t steps() const { return steps_; }

 private:
  WindowRuns runs_;
  uint32_t length_;
  bool packed_;
  int32_t* lengths_;
  bool* mask_;
  int32_t* cu_seqlens_;
  Plan& plan_;
  uint32_t rows_ = 0;
  uint64_t steps_ = 0;
};

// Fills in the rows of a derived output; of its window, lengths and cu_seqlens are there.
void fill_derived(const store::Index& index, const store::PageLayout& pages,
                  const select::Selection& selection, const BatchLayout::DerivedOutput& derived,
                  Batch& batch) {
  const BatchLayout& layout = *batch.layout;
  const Derived kind = derived.output.derived;
  const WindowRuns runs(index, pages.page_steps, derived.output);
  const auto length = static_cast<uint32_t>(derived.output.length());
  const uint64_t row_bytes = base::dtype_bytes(derived_dtype(kind));
  const auto* const begins = batch.at<int32_t>(layout.windows[derived.window].cu_seqlens);
  std::byte* const data = batch.block.get() + derived.data;
  for (uint64_t i = 0; i < selection.size(); ++i) {
    const store::Anchor anchor = selection.anchors[i];
    const Extent extent = runs.steps(anchor).extent;
    const Standing standing = runs.standing(anchor, extent);
    if (layout.packed) {
      write_derived(kind, standing, 0, extent.count, extent.count,
                    data + static_cast<uint64_t>(begins[i]) * row_bytes);
    } else {
      write_derived(kind, standing, extent.place, extent.count, length,
                    data + i * length * row_bytes);
    }
  }
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
  int64_t* ids = batch.at<int64_t>(layout.ids);
  for (uint64_t i = 0; i < items; ++i) {
    const store::Anchor anchor = selection.anchors[i];
    ids[i] = index.id(anchor, selection.unit);
    const store::Episode& episode = index.episode(index.page(anchor.page).episode);
    base::touch(&episode.begin);
    base::touch(&episode.closing_columns);
  }
  plan.reset();
  for (const BatchLayout::SharedWindow& shared : layout.windows) {
    const WindowRuns runs(index, pages.page_steps, shared.window);
    plan.begin_window(runs.most_runs(items) + 2 * items);  // zeros at either end
    WindowPlanner planner(runs, layout, shared, batch, plan);
    for (uint64_t i = 0; i < items; ++i) {
      planner.add_item(i, selection.anchors[i]);
    }
    batch.rows.push_back(planner.finish(items));
    for (size_t o : shared.outputs) {
      batch.bytes += planner.steps() * pages.step_bytes[layout.outputs[o].column];
    }
  }
  for (const BatchLayout::DerivedOutput& derived : layout.derived) {
    fill_derived(index, pages, selection, derived, batch);
  }
}

}  // namespace gear::plan
