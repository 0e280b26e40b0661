#include "collect/batch.h"

namespace gear::collect {

namespace {

bool same_steps(const Output& a, const Output& b) {
  return a.start == b.start && a.stop == b.stop && a.pad == b.pad &&
         (a.stop <= 1 || a.column == b.column);
}

}  // namespace

BatchLayout::BatchLayout(const store::Schema& schema, std::vector<Output> batch_outputs,
                         uint64_t size, bool pack)
    : outputs(std::move(batch_outputs)), batch_size(size), packed(pack) {
  const auto place = [this](uint64_t field_bytes) {
    const uint64_t offset = bytes;
    bytes += (field_bytes + 63) / 64 * 64;
    return offset;
  };
  ids = place(size * sizeof(int64_t));
  probabilities = place(size * sizeof(float));
  weights = place(size * sizeof(float));
  for (size_t o = 0; o < outputs.size(); ++o) {
    size_t w = 0;
    while (w < windows.size() && !same_steps(windows[w].window, outputs[o])) ++w;
    if (w == windows.size()) windows.push_back({outputs[o], {}, 0, 0, 0});
    windows[w].outputs.push_back(o);
    window_of.push_back(w);
  }
  for (SharedWindow& shared : windows) {
    shared.lengths = place(size * sizeof(int32_t));
    if (packed) {
      shared.cu_seqlens = place((size + 1) * sizeof(int32_t));
    } else {
      shared.mask = place(size * shared.window.length());
    }
  }
  for (const Output& output : outputs) {
    data.push_back(place(size * output.length() * schema[output.column].step_bytes()));
  }
}

std::shared_ptr<std::byte> BlockPool::acquire() {
  std::unique_ptr<memory::Region> block;
  {
    const std::lock_guard guard(mutex_);
    if (!idle_.empty()) {
      block = std::move(idle_.back());
      idle_.pop_back();
    }
  }
  if (!block) block = memory::make_region(memory::Tier::kHost, bytes_, {});
  std::byte* data = block->data();
  return {data, [owner = shared_from_this(), held = block.release()](std::byte*) {
            owner->release(std::unique_ptr<memory::Region>(held));
          }};
}

void BlockPool::release(std::unique_ptr<memory::Region> block) noexcept {
  const std::lock_guard guard(mutex_);
  if (idle_.size() < max_idle_) idle_.push_back(std::move(block));
}

}  // namespace gear::collect
