#include "gather/cuda/row_gather.h"

#include <algorithm>

#include "base/errors.h"
#include "gather/cuda/fold_rows.h"

namespace gear::gather {

// Collects moves and launches them, kMovesPerLaunch at a time.
class RowGather::Launch {
 public:
  Launch(RowForm form, uint64_t page_bytes, uint32_t page_steps, bool padded,
         std::span<std::byte* const> blocks, uint32_t most_blocks, cudaStream_t stream)
      : form_(form), most_blocks_(most_blocks), stream_(stream) {
    job_.page_bytes = page_bytes;
    job_.page_steps = base::Divider(page_steps);
    job_.padded = padded;
    std::copy(blocks.begin(), blocks.end(), job_.blocks);
    job_.slot_bits = 32;
  }

  void name_owners(std::span<const std::byte* const> sources, uint32_t slot_bits) {
    std::copy(sources.begin(), sources.end(), job_.sources);
    job_.slot_bits = slot_bits;
  }

  void mark_end(const ReadMark& mark) { job_.mark = mark; }

  void add(const RowMove& shape, const std::byte* source, uint64_t data,
           const plan::RowList& list) {
    if (list.count == 0) {
      return;
    }
    if (job_.num_moves == kMovesPerLaunch) {
      flush();
    }
    RowMove& move = job_.moves[job_.num_moves++];
    move = shape;
    move.source = source;
    move.data = data;
    move.slots = list.slots;
    move.order = list.targets;
    move.filled = list.filled;
    move.num_rows = list.count;
  }

  void flush() {
    launch_rows(form_, job_, most_blocks_, stream_);
    job_.num_moves = 0;
  }

 private:
  RowForm form_;
  RowJob job_{};
  uint32_t most_blocks_;
  cudaStream_t stream_;
};

RowGather::RowGather(std::shared_ptr<const plan::BatchLayout> layout,
                     const store::PageLayout& pages, RowForm form)
    : layout_(std::move(layout)),
      page_bytes_(pages.page_bytes),
      page_steps_(static_cast<uint32_t>(pages.page_steps)),
      form_(form) {
  for (size_t o = 0; o < layout_->outputs.size(); ++o) {
    const plan::BatchLayout::ColumnOutput& output = layout_->outputs[o];
    (output.fold ? folded_ : moved_).push_back(o);
    const uint64_t step_bytes = pages.step_bytes[output.column];
    column_offset_.push_back(pages.column_offset[output.column]);
    const plan::Cast cast = layout_->casts[o];
    RowMove move = describe_move(step_bytes, cast, output.scale, form_);
    move.block_rows =
        base::Divider(static_cast<uint32_t>(layout_->batch_size * output.window_rows));
    moves_.push_back(move);
    unpack_moves_.push_back(describe_move(step_bytes, cast, output.scale, RowForm::kListed));
    pack_moves_.push_back(describe_move(step_bytes, plan::Cast::kNone, 1.0F, RowForm::kListed));
    bool shared = false;
    for (size_t other = 0; other < o; ++other) {
      shared |= layout_->window_of[other] == layout_->window_of[o] &&
                layout_->outputs[other].column == output.column;
    }
    shared_.push_back(shared);
  }
}

void RowGather::gather(std::span<const Part> parts, std::span<std::byte* const> blocks,
                       uint32_t most_blocks, cudaStream_t stream) const {
  GEAR_CHECK(blocks.size() == 1 ||
             (form_ == RowForm::kAddressed && blocks.size() <= kMostGatherBlocks));
  // Of a packed batch the rows that are not there lie behind the others and are nobody's.
  Launch launch(form_, page_bytes_, page_steps_, !layout_->packed, blocks, most_blocks, stream);
  for (const Part& part : parts) {
    GEAR_CHECK(reinterpret_cast<uintptr_t>(part.source) % 64 == 0);
    for (const size_t o : moved_) {
      const plan::RowList& list = part.lists[layout_->window_of[o]];
      GEAR_CHECK(list.count <= uint64_t{moves_[o].block_rows.divisor()} * blocks.size());
      launch.add(moves_[o], part.source + column_offset_[o], layout_->data[o], list);
    }
  }
  launch.flush();
  for (const Part& part : parts) {
    fold(part, blocks, most_blocks, stream);
  }
}

void RowGather::fold(const Part& part, std::span<std::byte* const> blocks, uint32_t most_blocks,
                     cudaStream_t stream) const {
  const std::span planned = form_ == RowForm::kDelivered ? part.lists : part.planned;
  for (const size_t o : folded_) {
    const size_t w = layout_->window_of[o];
    GEAR_CHECK(w < planned.size() && planned[w].targets == nullptr);
    const plan::Fold& fold = *layout_->outputs[o].fold;
    const uint64_t items = planned[w].count / fold.n;
    GEAR_CHECK(items <= layout_->batch_size * blocks.size());
    FoldJob job{};
    job.source = part.source + column_offset_[o];
    job.page_bytes = page_bytes_;
    job.page_steps = base::Divider(page_steps_);
    job.n = fold.n;
    job.row_values = static_cast<uint32_t>(layout_->row_bytes[o] / sizeof(float));
    job.factor = fold.factor;
    for (size_t b = 0; b < blocks.size(); ++b) {
      const uint64_t first = std::min(b * layout_->batch_size, items);
      const uint64_t cu_seqlens = layout_->windows[w].cu_seqlens;
      job.slots = planned[w].slots + first * fold.n;
      job.cu_seqlens =
          layout_->packed ? reinterpret_cast<const int32_t*>(blocks[b] + cu_seqlens) : nullptr;
      job.sums = reinterpret_cast<float*>(blocks[b] + layout_->data[o]);
      job.items = static_cast<uint32_t>(std::min(items - first, layout_->batch_size));
      launch_fold(job, most_blocks, stream);
    }
  }
}

void RowGather::gather_owned(std::span<const std::byte* const> sources, uint32_t slot_bits,
                             std::span<const plan::RowList> lists, std::byte* block,
                             const ReadMark& mark, uint32_t most_blocks,
                             cudaStream_t stream) const {
  GEAR_CHECK(folded_.empty());
  GEAR_CHECK(form_ == RowForm::kOwned || form_ == RowForm::kAddressed);
  GEAR_CHECK(sources.size() <= kMostSources);
  Launch launch(form_, page_bytes_, page_steps_, true, {&block, 1}, most_blocks, stream);
  launch.name_owners(sources, slot_bits);
  for (size_t o = 0; o < moves_.size(); ++o) {
    const std::byte* in_page = nullptr;
    in_page += column_offset_[o];
    launch.add(moves_[o], in_page, layout_->data[o], lists[layout_->window_of[o]]);
  }
  launch.mark_end(mark);
  launch.flush();
}

void RowGather::unpack(std::span<const Part> parts, std::byte* block, uint32_t most_blocks,
                       cudaStream_t stream) const {
  GEAR_CHECK(folded_.empty());
  // One page without end: a slot is a row.
  Launch launch(RowForm::kListed, 0, UINT32_MAX, true, {&block, 1}, most_blocks, stream);
  for (const Part& part : parts) {
    for (size_t o = 0; o < moves_.size(); ++o) {
      launch.add(unpack_moves_[o], part.source + part.rows->offset[o], layout_->data[o],
                 part.lists[layout_->window_of[o]]);
    }
  }
  launch.flush();
}

void RowGather::pack(std::span<const Part> parts, std::span<std::byte* const> out,
                     uint32_t most_blocks, cudaStream_t stream) const {
  GEAR_CHECK(parts.size() == out.size());
  if (parts.empty()) {
    return;
  }
  // The rows of all consumers lie in one buffer, where out[0] comes first.
  Launch launch(RowForm::kListed, page_bytes_, page_steps_, true, out.first(1), most_blocks,
                stream);
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto begin = static_cast<uint64_t>(out[i] - out[0]);
    for (size_t o = 0; o < moves_.size(); ++o) {
      if (!shared_[o]) {
        launch.add(pack_moves_[o], parts[i].source + column_offset_[o],
                   begin + parts[i].rows->offset[o], parts[i].lists[layout_->window_of[o]]);
      }
    }
  }
  launch.flush();
}

}  // namespace gear::gather
