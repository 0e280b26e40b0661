#include "torch/gpu/stage.h"

#include <algorithm>

#include "base/gpu/beside_captures.h"

namespace gear::process_group {
namespace {

constexpr uint64_t kLeastPiece = 64 << 10;  // a copy of less takes as long

at::Tensor part(const at::Tensor& bytes, uint64_t begin, uint64_t end) {
  return bytes.narrow(0, static_cast<int64_t>(begin), static_cast<int64_t>(end - begin));
}

}  // namespace

Block Stage::add(const at::Tensor& dense, bool comes, bool leaves) {
  const uint64_t length = dense.nbytes();
  if (length == 0) {
    return {nullptr, 0};
  }
  Buffer buffer{.host = copier_->room(static_cast<int64_t>(length)),
                // Without the tensor's version: as with other backends, autograd sees no write.
                .device = dense.variable_data().view({-1}).view(at::kByte),
                .block = {nullptr, length},
                .comes = comes,
                .leaves = leaves,
                .come_with = {},
                .left = {}};
  buffer.block.bytes = static_cast<std::byte*>(buffer.host.data_ptr());
  if (leaves) {
    copier_->keep(dense);
  }
  buffers_.push_back(std::move(buffer));
  return buffers_.back().block;
}

void Stage::begin(const std::vector<Schedule>& schedules, uint64_t piece_bytes) {
  piece_bytes_ = std::max(piece_bytes, kLeastPiece);
  copier_->follow_caller();
  for (Buffer& buffer : buffers_) {
    if (buffer.comes) {
      buffer.come_with.resize((buffer.block.length + piece_bytes_ - 1) / piece_bytes_);
    }
  }
  for (const Schedule& schedule : schedules) {
    for (const Round& round : schedule.rounds) {
      ask_for(round);
    }
  }
  for (Buffer& buffer : buffers_) {
    ask(buffer, {0, buffer.block.length});
  }
}

// Piece by piece of all transfers, as they are posted.
void Stage::ask_for(const Round& round) {
  bool more = true;
  for (uint64_t begin = 0; more; begin += piece_bytes_) {
    more = false;
    for (const Transfer& transfer : round.transfers) {
      if (begin < transfer.length && (!transfer.receives || transfer.reduces)) {
        ask({transfer.bytes + begin, std::min(piece_bytes_, transfer.length - begin)});
        more = true;
      }
    }
  }
  if (round.reads) {
    ask(*round.reads);
  }
}

void Stage::ask(Block block) {
  const auto [buffer, range] = find(block.bytes, block.length);
  if (buffer != nullptr) {
    ask(*buffer, range);
  }
}

void Stage::ask(Buffer& buffer, Range range) {
  if (!buffer.comes) {
    return;
  }
  for (uint64_t i = range.begin / piece_bytes_; i * piece_bytes_ < range.end; ++i) {
    if (buffer.come_with[i] == 0) {
      const uint64_t begin = i * piece_bytes_;
      const uint64_t end = std::min(begin + piece_bytes_, buffer.block.length);
      marks_.push_back(
          copier_->copy_in(part(buffer.host, begin, end), part(buffer.device, begin, end)));
      buffer.come_with[i] = marks_.size();
    }
  }
}

std::pair<Stage::Buffer*, Stage::Range> Stage::find(const std::byte* bytes, uint64_t length) {
  for (Buffer& buffer : buffers_) {
    const std::byte* const begin = buffer.block.bytes;
    if (length > 0 && bytes >= begin && bytes < begin + buffer.block.length) {
      const auto from = static_cast<uint64_t>(bytes - begin);
      return {&buffer, {from, from + length}};
    }
  }
  return {nullptr, {0, 0}};
}

bool Stage::have_come(size_t num_marks) {
  for (; num_reached_ < num_marks; ++num_reached_) {
    if (!marks_[num_reached_]->reached()) {
      return false;
    }
    marks_[num_reached_] = nullptr;
  }
  return true;
}

bool Stage::has_come(const std::byte* bytes, uint64_t length) {
  const auto [buffer, range] = find(bytes, length);
  if (buffer == nullptr || !buffer->comes) {
    return true;
  }
  size_t last = 0;
  for (uint64_t i = range.begin / piece_bytes_; i * piece_bytes_ < range.end; ++i) {
    last = std::max(last, buffer->come_with[i]);
  }
  return have_come(last);
}

bool Stage::have_all_come() { return have_come(marks_.size()); }

void Stage::leave(const std::byte* bytes, uint64_t length) {
  const auto [buffer, range] = find(bytes, length);
  if (buffer != nullptr && buffer->leaves) {
    send(*buffer, range);
  }
}

void Stage::send(Buffer& buffer, Range range) {
  copier_->copy_out(part(buffer.device, range.begin, range.end),
                    part(buffer.host, range.begin, range.end));
  buffer.left.push_back(range);
}

void Stage::finish(const std::vector<std::pair<at::Tensor, at::Tensor>>& copies) {
  bool any = !copies.empty();
  for (Buffer& buffer : buffers_) {
    if (!buffer.leaves) {
      continue;
    }
    any = true;
    std::ranges::sort(buffer.left, {}, &Range::begin);
    const std::vector<Range> left = buffer.left;
    uint64_t begin = 0;
    for (const Range range : left) {
      if (begin < range.begin) {
        send(buffer, {begin, range.begin});
      }
      begin = range.end;
    }
    if (begin < buffer.block.length) {
      send(buffer, {begin, buffer.block.length});
    }
  }
  for (const auto& [from, to] : copies) {
    copier_->keep(from);
    copier_->keep(to);
    copier_->copy_out(to, from);
  }
  if (any) {
    end_ = copier_->mark_out();
  }
  const base::BesideCaptures beside;  // page-locked memory is marked where copies use it
  buffers_.clear();
}

void Stage::hold_caller() const {
  if (end_) {
    end_->hold_caller();
  }
}

}  // namespace gear::process_group
