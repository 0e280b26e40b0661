#include <algorithm>
#include <cstring>
#include <vector>

#include "base/cuda/staging.h"
#include "base/errors.h"
#include "store/mirror/mirror.h"

namespace gear::store {
namespace {

constexpr size_t kParts = 8;
constexpr uint64_t kPartBytes = 4 << 20;
constexpr uint64_t kRecordBytes = 4096;  // of one warp's copy
constexpr uint64_t kVector = sizeof(uint4);
constexpr unsigned kWarpSize = 32;
constexpr unsigned kWarps = 4;            // of a block
constexpr uint64_t kColumnsBytes = 4096;  // of the columns of one call of write_rows(): 64

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

struct MovedColumn {
  RowSink::DeviceColumn column;
  uint32_t unit;  // bytes: a power of two, up to a vector, that divides those of a step
};

template <class Unit>
__device__ void move_rows(std::byte* region, uint64_t page_bytes,
                          const RowSink::DeviceColumn& column, const RowSink::RowMove* moves,
                          uint64_t num_moves) {
  const uint64_t units = column.step_bytes / sizeof(Unit);
  for (uint64_t k = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; k < num_moves * units;
       k += uint64_t{gridDim.x} * blockDim.x) {
    const RowSink::RowMove move = moves[k / units];
    const uint64_t to = move.page * page_bytes + column.offset + move.row * column.step_bytes;
    reinterpret_cast<Unit*>(region + to)[k % units] =
        reinterpret_cast<const Unit*>(column.from + move.source * column.step_bytes)[k % units];
  }
}

// Of the column blockIdx.y. Rows begin at multiples of the unit: columns, in a page and where they
// come from, at multiples of a vector.
__global__ void write_moves(std::byte* region, uint64_t page_bytes, const MovedColumn* columns,
                            const RowSink::RowMove* moves, uint64_t num_moves) {
  const MovedColumn moved = columns[blockIdx.y];
  switch (moved.unit) {
    case 16:
      return move_rows<uint4>(region, page_bytes, moved.column, moves, num_moves);
    case 8:
      return move_rows<uint2>(region, page_bytes, moved.column, moves, num_moves);
    case 4:
      return move_rows<uint32_t>(region, page_bytes, moved.column, moves, num_moves);
    case 2:
      return move_rows<uint16_t>(region, page_bytes, moved.column, moves, num_moves);
    default:
      return move_rows<uint8_t>(region, page_bytes, moved.column, moves, num_moves);
  }
}

class DeviceRowSink final : public RowSink {
 public:
  DeviceRowSink(memory::Region& region, uint64_t page_bytes)
      : region_(region),
        page_bytes_(page_bytes),
        stream_(region.device()),
        staging_(kParts, region.device()),
        written_in_((region.bytes() + page_bytes - 1) / page_bytes, 0) {
    staging_.reserve(kPartBytes, true);
  }

  ~DeviceRowSink() override { stream_.drain(); }

  const base::Stream& stream() const override { return stream_; }

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

  void write_rows(std::span<const DeviceColumn> columns, std::span<const RowMove> moves) override {
    constexpr unsigned kThreads = 256;
    constexpr uint64_t kMostBlocks = 1024;  // of a column
    constexpr uint64_t kMostMoves = kMostBytes / sizeof(RowMove);
    const base::OnDevice current(stream_.device());
    for (; !moves.empty(); moves = moves.subspan(std::min(moves.size(), kMostMoves))) {
      const auto now = moves.first(std::min(moves.size(), kMostMoves));
      const uint64_t columns_bytes = columns.size() * sizeof(MovedColumn);
      const uint64_t at = take_room(columns_bytes + now.size_bytes());
      std::byte* const staged = part_ + at;
      uint64_t most_units = 0;
      for (size_t c = 0; c < columns.size(); ++c) {
        const uint64_t unit = std::min(kVector, columns[c].step_bytes & -columns[c].step_bytes);
        const MovedColumn moved{columns[c], static_cast<uint32_t>(unit)};
        std::memcpy(staged + c * sizeof moved, &moved, sizeof moved);
        most_units = std::max(most_units, columns[c].step_bytes / unit);
      }
      std::memcpy(staged + columns_bytes, now.data(), now.size_bytes());
      const std::byte* there = staging_.send(columns_bytes + now.size_bytes(), stream_, at) + at;
      const uint64_t blocks = (now.size() * most_units + kThreads - 1) / kThreads;
      const dim3 grid(static_cast<unsigned>(std::min(blocks, kMostBlocks)),
                      static_cast<unsigned>(columns.size()));
      write_moves<<<grid, kThreads, 0, stream_>>>(
          region_.device_data(), page_bytes_, reinterpret_cast<const MovedColumn*>(there),
          reinterpret_cast<const RowMove*>(there + columns_bytes), now.size());
      GEAR_CUDA_TRY(cudaGetLastError());
    }
    flushed_.record(stream_);
  }

  bool has_room(uint64_t bytes) const override {
    GEAR_CHECK(bytes <= kMostBytes);
    constexpr uint64_t kEach = sizeof(RowRecord) + kVector;
    static_assert(kEach < kCallBytes);
    const uint64_t needed = bytes + (bytes / kRecordBytes + 2) * kEach + kColumnsBytes;
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
    const base::OnDevice current(stream_.device());
    const uint64_t records_at =
        (used_ + alignof(RowRecord) - 1) / alignof(RowRecord) * alignof(RowRecord);
    const uint64_t records_bytes = records_.size() * sizeof(RowRecord);
    std::memcpy(part_ + records_at, records_.data(), records_bytes);
    const uint64_t end = records_at + records_bytes;
    const std::byte* there = staging_.send(end - sent_, stream_, sent_);
    const auto count = static_cast<uint32_t>(records_.size());
    scatter_rows<<<(count + kWarps - 1) / kWarps, kWarps * kWarpSize, 0, stream_>>>(
        region_.device_data(), there, reinterpret_cast<const RowRecord*>(there + records_at),
        count);
    GEAR_CUDA_TRY(cudaGetLastError());
    flushed_.record(stream_);
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

  // So many bytes in the part, aligned to a vector, behind the rows of all records, which are
  // flushed: theirs is what is sent next.
  uint64_t take_room(uint64_t bytes) {
    flush();
    const auto place = [&] { return (used_ + kVector - 1) / kVector * kVector; };
    if (part_ != nullptr && place() + bytes > kPartBytes) {
      close_part();
    }
    if (part_ == nullptr) {
      part_ = staging_.acquire(kPartBytes);
    }
    const uint64_t at = place();
    used_ = sent_ = at + bytes;
    return at;
  }

  // It may be filled again when the stream has come here.
  void close_part() {
    const base::OnDevice current(stream_.device());
    staging_.release(stream_);
    part_ = nullptr;
    used_ = sent_ = 0;
  }

  memory::Region& region_;
  uint64_t page_bytes_;
  base::Stream stream_;
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

std::unique_ptr<RowSink> make_row_sink(memory::Region& region, uint64_t page_bytes) {
  const base::OnDevice current(region.device());
  return std::make_unique<DeviceRowSink>(region, page_bytes);
}

}  // namespace gear::store
