#include <algorithm>
#include <cstring>
#include <vector>

#include "base/cuda/staging.h"
#include "base/errors.h"
#include "store/mirror/cuda/device_index.h"

namespace gear::store {
namespace {

constexpr size_t kParts = 8;
constexpr uint64_t kPartBytes = 4 << 20;
constexpr uint64_t kRecordBytes = 4096;  // of one warp's copy
constexpr uint64_t kVector = sizeof(uint4);
constexpr unsigned kWarpSize = 32;
constexpr unsigned kWarps = 4;  // of a block

struct RowRecord {
  uint64_t offset;  // in the region
  uint32_t source;  // in the part; the same as `offset` modulo 16
  uint32_t bytes;
};

// One warp a record: bytes up to a multiple of 16, vectors, the bytes that are left.
__global__ void scatter_rows(std::byte* region, const std::byte* part, const RowRecord* records,
                             uint32_t num_records) {
  const uint32_t i = blockIdx.x * kWarps + threadIdx.x / kWarpSize;
  if (i >= num_records) {
    return;
  }
  const RowRecord record = records[i];
  const unsigned lane = threadIdx.x % kWarpSize;
  const std::byte* from = part + record.source;
  std::byte* to = region + record.offset;
  const uint32_t before = static_cast<uint32_t>(kVector - record.offset % kVector) % kVector;
  const uint32_t head = before < record.bytes ? before : record.bytes;
  const uint32_t vectors = (record.bytes - head) / static_cast<uint32_t>(kVector);
  const uint32_t tail = head + vectors * static_cast<uint32_t>(kVector);
  if (lane < head) {
    to[lane] = from[lane];
  }
  const auto* vectors_from = reinterpret_cast<const uint4*>(from + head);
  auto* vectors_to = reinterpret_cast<uint4*>(to + head);
  for (uint32_t k = lane; k < vectors; k += kWarpSize) {
    vectors_to[k] = vectors_from[k];
  }
  if (tail + lane < record.bytes) {
    to[tail + lane] = from[tail + lane];
  }
}

class DeviceRowSink final : public RowSink {
 public:
  DeviceRowSink(memory::Region& region, uint64_t page_bytes, DeviceIndex& mirror)
      : region_(region),
        page_bytes_(page_bytes),
        mirror_(mirror),
        staging_(kParts, mirror.device()),
        written_in_((region.bytes() + page_bytes - 1) / page_bytes, 0) {
    staging_.reserve(kPartBytes, true);
    mirror_.set_rows(this);
  }

  ~DeviceRowSink() override {
    mirror_.set_rows(nullptr);
    mirror_.stream().drain();
  }

  void write(uint64_t offset, const std::byte* source, uint64_t bytes) override {
    GEAR_CHECK(offset + bytes <= region_.bytes());
    const uint64_t page = offset / page_bytes_;
    while (bytes > 0) {
      const uint64_t count = std::min(bytes, kRecordBytes);
      std::byte* staged = add_record(offset, count);
      if (source != nullptr) {
        std::memcpy(staged, source, count);
        source += count;
      } else {
        std::memset(staged, 0, count);
      }
      offset += count;
      bytes -= count;
    }
    written_in_[page] = flushes_;
  }

  bool has_room(uint64_t bytes, uint64_t calls) const override {
    GEAR_CHECK(bytes <= kMostBytes);
    const uint64_t records = bytes / kRecordBytes + 2 * calls + 2;
    const uint64_t needed = bytes + records * (sizeof(RowRecord) + kVector);
    if (part_ != nullptr && used_ + records_.size() * sizeof(RowRecord) + needed <= kPartBytes) {
      return true;
    }
    return staging_.has_free(part_ == nullptr ? 0 : 1);
  }

  // The records of one flush are written side by side.
  void reused(uint64_t page) override {
    if (written_in_[page] == flushes_) {
      flush();
    }
  }

  void flush() override {
    if (records_.empty()) {
      return;
    }
    const base::OnDevice current(mirror_.device());
    const uint64_t records_at =
        (used_ + alignof(RowRecord) - 1) / alignof(RowRecord) * alignof(RowRecord);
    const uint64_t records_bytes = records_.size() * sizeof(RowRecord);
    std::memcpy(part_ + records_at, records_.data(), records_bytes);
    const uint64_t end = records_at + records_bytes;
    const std::byte* there = staging_.send(end - sent_, mirror_.stream(), sent_);
    const auto count = static_cast<uint32_t>(records_.size());
    scatter_rows<<<(count + kWarps - 1) / kWarps, kWarps * kWarpSize, 0, mirror_.stream()>>>(
        region_.device_data(), there, reinterpret_cast<const RowRecord*>(there + records_at),
        count);
    GEAR_CUDA_TRY(cudaGetLastError());
    flushed_.record(mirror_.stream());
    records_.clear();
    used_ = sent_ = end;
    ++flushes_;
  }

  void wait() override { flushed_.synchronize(); }

 private:
  // Room for `bytes` in the part, for a record that goes to `offset`.
  std::byte* add_record(uint64_t offset, uint64_t bytes) {
    const auto place = [&] { return used_ + (offset - used_) % kVector; };
    const uint64_t records = (records_.size() + 2) * sizeof(RowRecord);  // with this and padding
    if (part_ != nullptr && place() + bytes + records > kPartBytes) {
      flush();
      close_part();
    }
    if (part_ == nullptr) {
      part_ = staging_.acquire(kPartBytes);
    }
    const uint64_t at = place();
    records_.push_back({offset, static_cast<uint32_t>(at), static_cast<uint32_t>(bytes)});
    used_ = at + bytes;
    return part_ + at;
  }

  // It may be filled again when the stream has come here.
  void close_part() {
    const base::OnDevice current(mirror_.device());
    staging_.release(mirror_.stream());
    part_ = nullptr;
    used_ = sent_ = 0;
  }

  memory::Region& region_;
  uint64_t page_bytes_;
  DeviceIndex& mirror_;
  base::Staging staging_;
  base::Event flushed_;               // the last rows
  std::vector<uint64_t> written_in_;  // by page: number of the flush that takes its last row
  uint64_t flushes_ = 1;
  // Flush by flush one part is filled, and only then the next: rows that come in small numbers
  // between many flushes take no more of the ring than rows that come together.
  std::byte* part_ = nullptr;
  uint64_t used_ = 0;
  uint64_t sent_ = 0;  // bytes of the part that earlier flushes took
  std::vector<RowRecord> records_;
};

}  // namespace

std::unique_ptr<RowSink> make_row_sink(memory::Region& region, uint64_t page_bytes,
                                       Mirror& mirror) {
  const base::OnDevice current(mirror.device());
  return std::make_unique<DeviceRowSink>(region, page_bytes, *mirror.device_index());
}

}  // namespace gear::store
