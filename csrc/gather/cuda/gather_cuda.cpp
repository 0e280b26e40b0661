#include "gather/cuda/gather_cuda.h"

#include <algorithm>

#include "base/errors.h"
#include "gather/cuda/gather_rows.h"

namespace gear::gather {

struct GatherCuda::Table {
  RowJob job;
  size_t first_output;
};

GatherCuda::GatherCuda(GatherSource source, std::shared_ptr<const plan::BatchLayout> layout,
                       const store::PageLayout& pages, bool ordered, int device)
    : layout_(std::move(layout)),
      device_(device),
      ordered_(ordered),
      most_blocks_(source.from_host && !ordered ? kBlocksFromHost : UINT32_MAX) {
  GEAR_CHECK(source.pages != nullptr && reinterpret_cast<uintptr_t>(source.pages) % 64 == 0);
  const RowForm form = ordered_ ? RowForm::kAddressed : RowForm::kDelivered;
  const size_t num_outputs = layout_->outputs.size();
  for (size_t begin = 0; begin < num_outputs; begin += kMovesPerLaunch) {
    Table table{{}, begin};
    table.job.page_bytes = pages.page_bytes;
    table.job.page_steps = base::Divider(static_cast<uint32_t>(pages.page_steps));
    table.job.padded = !layout_->packed;
    const size_t end = std::min<size_t>(num_outputs, begin + kMovesPerLaunch);
    table.job.num_moves = static_cast<uint32_t>(end - begin);
    for (size_t o = begin; o < end; ++o) {
      const plan::Output& output = layout_->outputs[o];
      RowMove move =
          describe_move(pages.step_bytes[output.column], layout_->casts[o], output.scale, form);
      move.source = source.pages + pages.column_offset[output.column];
      move.data = layout_->data[o];
      move.block_rows = base::Divider(static_cast<uint32_t>(layout_->batch_size * output.length()));
      table.job.moves[o - begin] = move;
    }
    tables_.push_back(table);
  }
}

GatherCuda::~GatherCuda() = default;

void GatherCuda::launch(const std::vector<plan::DeviceRows>& rows, uint64_t items,
                        std::span<std::byte* const> blocks, cudaStream_t stream) const {
  const size_t most_blocks = ordered_ ? kMostBlocks : 1;
  GEAR_CHECK(!blocks.empty() && blocks.size() <= most_blocks);
  GEAR_CHECK(items <= blocks.size() * layout_->batch_size);
  GEAR_CHECK(rows.size() == layout_->windows.size());
  if (items == 0) {
    return;
  }
  const base::OnDevice current(device_);
  for (const Table& table : tables_) {
    RowJob job = table.job;
    std::copy(blocks.begin(), blocks.end(), job.blocks);
    for (uint32_t i = 0; i < job.num_moves; ++i) {
      const size_t o = table.first_output + i;
      const size_t w = layout_->window_of[o];
      RowMove& move = job.moves[i];
      move.slots = rows[w].slots;
      move.order = rows[w].order;
      move.num_rows = static_cast<uint32_t>(items * layout_->outputs[o].length());
      if (layout_->packed && !ordered_) {
        move.filled =
            reinterpret_cast<const int32_t*>(blocks[0] + layout_->windows[w].cu_seqlens) + items;
      }
    }
    launch_rows(ordered_ ? RowForm::kAddressed : RowForm::kDelivered, job, most_blocks_, stream);
  }
}

}  // namespace gear::gather
