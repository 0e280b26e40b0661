#include "gather/cuda/list_gather.h"

#include "base/errors.h"

namespace gear::gather {

// Collects moves to the places of one block and launches them, kMovesPerLaunch at a time.
class ListGather::Launch {
 public:
  Launch(RowForm form, uint64_t page_bytes, uint32_t page_steps, std::byte* block,
         uint32_t most_blocks, cudaStream_t stream)
      : form_(form), most_blocks_(most_blocks), stream_(stream) {
    job_.page_bytes = page_bytes;
    job_.page_steps = base::Divider(page_steps);
    job_.blocks[0] = block;
    job_.padded = true;
  }

  void add(const RowMove& shape, const std::byte* source, uint64_t data, const RowList& list) {
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
    move.num_rows = list.count;
    move.block_rows = base::Divider(UINT32_MAX);  // all in one block
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

ListGather::ListGather(std::shared_ptr<const plan::BatchLayout> layout,
                       const store::PageLayout& pages, RowForm form)
    : layout_(std::move(layout)),
      page_bytes_(pages.page_bytes),
      page_steps_(static_cast<uint32_t>(pages.page_steps)),
      form_(form) {
  for (size_t o = 0; o < layout_->outputs.size(); ++o) {
    const plan::Output& output = layout_->outputs[o];
    const uint64_t step_bytes = pages.step_bytes[output.column];
    column_offset_.push_back(pages.column_offset[output.column]);
    const plan::Cast cast = layout_->casts[o];
    moves_.push_back(describe_move(step_bytes, cast, output.scale, form_));
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

void ListGather::gather(std::span<const Part> parts, std::byte* block, uint32_t most_blocks,
                        cudaStream_t stream) const {
  Launch launch(form_, page_bytes_, page_steps_, block, most_blocks, stream);
  for (const Part& part : parts) {
    for (size_t o = 0; o < moves_.size(); ++o) {
      launch.add(moves_[o], part.source + column_offset_[o], layout_->data[o],
                 part.lists[layout_->window_of[o]]);
    }
  }
  launch.flush();
}

void ListGather::unpack(std::span<const Part> parts, std::byte* block, uint32_t most_blocks,
                        cudaStream_t stream) const {
  // One page without end: a slot is a row.
  Launch launch(RowForm::kListed, 0, UINT32_MAX, block, most_blocks, stream);
  for (const Part& part : parts) {
    for (size_t o = 0; o < moves_.size(); ++o) {
      launch.add(unpack_moves_[o], part.source + part.rows->offset[o], layout_->data[o],
                 part.lists[layout_->window_of[o]]);
    }
  }
  launch.flush();
}

void ListGather::pack(std::span<const Part> parts, std::span<std::byte* const> out,
                      uint32_t most_blocks, cudaStream_t stream) const {
  GEAR_CHECK(parts.size() == out.size());
  if (parts.empty()) {
    return;
  }
  // The rows of all consumers lie in one buffer, where out[0] comes first.
  Launch launch(RowForm::kListed, page_bytes_, page_steps_, out[0], most_blocks, stream);
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto begin = static_cast<uint64_t>(out[i] - out[0]);
    for (size_t o = 0; o < moves_.size(); ++o) {
      if (shared_[o]) {
        continue;
      }
      launch.add(pack_moves_[o], parts[i].source + column_offset_[o],
                 begin + parts[i].rows->offset[o], parts[i].lists[layout_->window_of[o]]);
    }
  }
  launch.flush();
}

}  // namespace gear::gather
