#include "collect/plan.h"

#include <algorithm>
#include <cstring>

namespace gear::collect {
namespace {

// Plans one batch; holds what all its items share.
class Planner {
 public:
  Planner(const store::Index& index, const store::PageLayout& pages, Batch& batch, Plan& plan)
      : index_(index), pages_(pages), layout_(*batch.layout), batch_(batch), plan_(plan) {}

  void add_item(uint64_t item, store::Anchor anchor) {
    const store::Page& page = index_.page(anchor.page);
    const store::Episode& episode = index_.episode(page.episode);
    const uint64_t step = page.first_step + anchor.row;
    for (size_t o = 0; o < layout_.outputs.size(); ++o) {
      const Output& output = layout_.outputs[o];
      const Extent extent =
          extent_of(episode, step, output.column, output.start, output.stop, output.pad);
      batch_.at<int32_t>(layout_.fields[o].lengths)[item] = static_cast<int32_t>(extent.count);
      if (layout_.packed) {
        add_packed(item, o, anchor.page, extent);
      } else {
        add_padded(item, o, anchor.page, extent);
      }
    }
  }

  void finish(uint64_t items) {
    for (size_t o = 0; layout_.packed && o < layout_.outputs.size(); ++o) {
      batch_.at<int32_t>(layout_.fields[o].cu_seqlens)[items] =
          static_cast<int32_t>(batch_.rows[o]);
    }
  }

 private:
  void add_packed(uint64_t item, size_t o, uint32_t page, const Extent& extent) {
    const BatchLayout::Field& field = layout_.fields[o];
    batch_.at<int32_t>(field.cu_seqlens)[item] = static_cast<int32_t>(batch_.rows[o]);
    const uint64_t target = field.data + batch_.rows[o] * field.step_bytes;
    if (extent.count > 0) add_copies(layout_.outputs[o].column, page, extent, target);
    batch_.rows[o] += extent.count;
  }

  void add_padded(uint64_t item, size_t o, uint32_t page, const Extent& extent) {
    const BatchLayout::Field& field = layout_.fields[o];
    const uint64_t length = layout_.outputs[o].length();
    const uint64_t target = field.data + item * length * field.step_bytes;
    bool* mask = batch_.at<bool>(field.mask) + item * length;
    batch_.rows[o] += length;
    if (extent.count == length) {
      for (uint64_t i = 0; i < length; ++i) mask[i] = true;
      add_copies(layout_.outputs[o].column, page, extent, target);
      return;
    }
    const uint64_t after = extent.place + extent.count;
    for (uint64_t i = 0; i < length; ++i) mask[i] = i >= extent.place && i < after;
    if (extent.place > 0) plan_.zero(target, extent.place * field.step_bytes);
    if (extent.count > 0) {
      add_copies(layout_.outputs[o].column, page, extent, target + extent.place * field.step_bytes);
    }
    if (after < length) {
      plan_.zero(target + after * field.step_bytes, (length - after) * field.step_bytes);
    }
  }

  // The steps of an extent, page by page; `p` is the anchor's page, where the search begins.
  void add_copies(size_t column, uint32_t p, const Extent& extent, uint64_t target) {
    const uint64_t page_steps = pages_.page_steps;
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
      plan_.copy(pages_.offset(p, column, row), target, rows * step_bytes);
      left -= rows;
      if (left == 0) return;
      target += rows * step_bytes;
      row = 0;
      p = index_.page(p).next;
    }
  }

  const store::Index& index_;
  const store::PageLayout& pages_;
  const BatchLayout& layout_;
  Batch& batch_;
  Plan& plan_;
};

// Most runs an item can take: its pages and the zeros at either end, for every output.
uint64_t most_runs(const BatchLayout& layout, uint64_t page_steps) {
  uint64_t runs = 0;
  for (const Output& output : layout.outputs) {
    runs += (output.length() + page_steps - 1) / page_steps + 3;
  }
  return runs;
}

}  // namespace

void Plan::reset(uint64_t count) {
  if (count > capacity_) {
    runs_.reset(new Run[count]);
    capacity_ = count;
  }
  size_ = 0;
  copied_bytes_ = 0;
}

void make_plan(const store::Index& index, const store::PageLayout& pages,
               const select::Selection& selection, Batch& batch, Plan& plan) {
  const BatchLayout& layout = *batch.layout;
  const uint64_t items = selection.size();
  plan.reset(items * most_runs(layout, pages.page_steps));
  batch.items = items;
  batch.rows.assign(layout.outputs.size(), 0);
  std::memcpy(batch.at<float>(layout.probabilities), selection.probabilities.data(),
              items * sizeof(float));
  std::memcpy(batch.at<float>(layout.weights), selection.weights.data(), items * sizeof(float));
  int64_t* ids = batch.at<int64_t>(layout.ids);
  for (uint64_t i = 0; i < items; ++i) {
    const store::Anchor anchor = selection.anchors[i];
    ids[i] = index.id(anchor, selection.unit);
    __builtin_prefetch(&index.episode(index.page(anchor.page).episode));
  }
  Planner planner(index, pages, batch, plan);
  for (uint64_t i = 0; i < items; ++i) planner.add_item(i, selection.anchors[i]);
  planner.finish(items);
  batch.bytes = plan.copied_bytes();
}

}  // namespace gear::collect
