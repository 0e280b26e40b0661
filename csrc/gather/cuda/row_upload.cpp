#include "gather/cuda/row_upload.h"

#include <cstring>

#include "base/errors.h"
#include "gather/row_lists.h"

namespace gear::gather {

void RowUpload::reset() {
  used_ = 0;
  listed_.clear();
  lists_.clear();
}

uint32_t* RowUpload::room(uint64_t entries) {
  const std::byte* const before = host_.data();
  const uint64_t needed = (used_ + entries) * sizeof(uint32_t);
  std::byte* const now = host_.get(needed);
  if (now != before && used_ > 0) {
    std::memcpy(now, before, used_ * sizeof(uint32_t));
  }
  return reinterpret_cast<uint32_t*>(now) + used_;
}

size_t RowUpload::add(const plan::Plan& plan, base::ThreadPool& pool) {
  const size_t number = listed_.size() / num_windows_;
  for (size_t w = 0; w < num_windows_; ++w) {
    // That of no rows may have no windows.
    const auto runs = w < plan.num_windows() ? plan.runs(w) : std::span<const plan::Run>();
    const uint64_t rows = count_rows(runs, pool);
    GEAR_CHECK(rows <= INT32_MAX);
    listed_.push_back({used_, static_cast<uint32_t>(rows)});
    if (rows == 0) {
      continue;
    }
    uint32_t* const slots = room(2 * rows);
    list_rows(runs, rows, page_steps_, slots, slots + rows, pool);
    used_ += 2 * rows;
  }
  return number;
}

void RowUpload::upload(cudaStream_t stream) {
  const uint64_t bytes = used_ * sizeof(uint32_t);
  auto* const entries = reinterpret_cast<uint32_t*>(device_memory_.get(bytes));
  if (bytes > 0) {
    GEAR_CUDA_TRY(cudaMemcpyAsync(entries, host_.data(), bytes, cudaMemcpyHostToDevice, stream));
  }
  for (const Listed& one : listed_) {
    const uint32_t* const slots = entries + one.begin;
    lists_.push_back({slots, slots + one.count, one.count});
  }
}

std::span<const plan::RowList> RowUpload::lists(size_t number) const {
  return {lists_.data() + number * num_windows_, num_windows_};
}

}  // namespace gear::gather
