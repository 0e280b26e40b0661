#include "collect/plan.h"

#include <algorithm>
#include <cstring>

namespace gear::collect {
namespace {

// Plans one window for all items of a batch.
class WindowPlanner {
 public:
  WindowPlanner(const store::Index& index, uint64_t page_steps, const BatchLayout& layout,
                const BatchLayout::SharedWindow& shared, Batch& batch, Plan& plan)
      : index_(index),
        page_steps_(static_cast<uint32_t>(page_steps)),
        window_(shared.window),
        length_(static_cast<uint32_t>(shared.window.length())),
        packed_(layout.packed),
        lengths_(batch.at<int32_t>(shared.lengths)),
        mask_(batch.at<bool>(shared.mask)),
        cu_seqlens_(batch.at<int32_t>(shared.cu_seqlens)),
        plan_(plan) {}

  void add_item(uint64_t item, store::Anchor anchor) {
    const store::Page& page = index_.page(anchor.page);
    const store::Episode& episode = index_.episode(page.episode);
    const Extent extent =
        extent_of(episode.begin, episode.end, episode.closing_columns, page.first_step + anchor.row,
                  window_.column, window_.start, window_.stop, window_.pad);
    lengths_[item] = static_cast<int32_t>(extent.count);
    steps_ += extent.count;
    if (packed_) {
      cu_seqlens_[item] = static_cast<int32_t>(rows_);
      if (extent.count > 0) add_copies(anchor.page, page.first_step, extent, rows_);
      rows_ += extent.count;
      return;
    }
    bool* mask = mask_ + item * length_;
    if (extent.count == length_) {
      for (uint32_t i = 0; i < length_; ++i) mask[i] = true;
      add_copies(anchor.page, page.first_step, extent, rows_);
    } else {
      add_padded(anchor.page, page.first_step, extent, mask);
    }
    rows_ += length_;
  }

  // Rows of data the window fills; steps copied from the store.
  uint64_t finish(uint64_t items) {
    if (packed_) cu_seqlens_[items] = static_cast<int32_t>(rows_);
    return rows_;
  }
  uint64_t steps() const { return steps_; }

 private:
  void add_padded(uint32_t page, uint64_t page_first, const Extent& extent, bool* mask) {
    const uint32_t after = extent.place + extent.count;
    for (uint32_t i = 0; i < length_; ++i) mask[i] = i >= extent.place && i < after;
    if (extent.place > 0) plan_.add({store::kNone, 0, extent.place, rows_});
    if (extent.count > 0) add_copies(page, page_first, extent, rows_ + extent.place);
    if (after < length_) plan_.add({store::kNone, 0, length_ - after, rows_ + after});
  }

  // The steps of an extent, page by page; `page` is the anchor's, where the search begins.
  void add_copies(uint32_t page, uint64_t page_first, const Extent& extent, uint32_t target) {
    while (extent.first < page_first) {
      page = index_.page(page).previous;
      page_first -= page_steps_;
    }
    while (extent.first >= page_first + page_steps_) {
      page = index_.page(page).next;
      page_first += page_steps_;
    }
    auto row = static_cast<uint32_t>(extent.first - page_first);
    uint32_t left = extent.count;
    for (;;) {
      const uint32_t count = std::min(left, page_steps_ - row);
      plan_.add({page, row, count, target});
      left -= count;
      if (left == 0) return;
      target += count;
      row = 0;
      page = index_.page(page).next;
    }
  }

  const store::Index& index_;
  uint32_t page_steps_;
  Output window_;
  uint32_t length_;
  bool packed_;
  int32_t* lengths_;
  bool* mask_;
  int32_t* cu_seqlens_;
  Plan& plan_;
  uint32_t rows_ = 0;
  uint64_t steps_ = 0;
};

}  // namespace

void Plan::reset() {
  size_ = 0;
  begins_.clear();
}

void Plan::begin_window(uint64_t most_runs) {
  begins_.push_back(size_);
  if (size_ + most_runs <= capacity_) return;
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
    __builtin_prefetch(&index.episode(index.page(anchor.page).episode));
  }
  plan.reset();
  for (const BatchLayout::SharedWindow& shared : layout.windows) {
    // An item touches so many pages at most, and zeros at either end.
    plan.begin_window(items * (shared.window.length() / pages.page_steps + 4));
    WindowPlanner planner(index, pages.page_steps, layout, shared, batch, plan);
    for (uint64_t i = 0; i < items; ++i) planner.add_item(i, selection.anchors[i]);
    batch.rows.push_back(planner.finish(items));
    for (size_t o : shared.outputs) {
      batch.bytes += planner.steps() * pages.step_bytes[layout.outputs[o].column];
    }
  }
}

}  // namespace gear::collect
