#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "memory/region.h"
#include "store/index/index_state.h"
#include "store/mirror/mirror.h"
#include "store/mirror/taken_arrays.h"
#include "store/page_layout.h"

namespace gear::store {

/// Where the bytes of a shard's steps lie: a region of pages, and what carries rows into it.
//
///   tier             a row of the host                    a row on the region's GPU
///   host memory      copied at once, by the caller        -
///   kDevice          copied into the row sink, whose      written by the row sink's stream, from
///                    stream writes it after a flush()     copies (TakenArrays)
///
/// Which page a row belongs to is for the caller to know. Host memory: any thread may write pages
/// that it alone fills. kDevice: under the shard's lock, but for wait().
class Pages {
 public:
  using Rows = std::span<const std::byte* const>;  ///< one pointer a column, to contiguous rows

  /// Columns of several environments, one pointer each, to a row an environment. Those of the bits
  /// `on_device` are copies that `taken` holds, on the region's GPU.
  struct EnvironmentRows {
    Rows columns;
    uint64_t on_device = 0;
    TakenArrays* taken = nullptr;
  };

  /// `region` has room for whole pages of `layout`. Throws as make_row_sink().
  Pages(const PageLayout& layout, std::unique_ptr<memory::Region> region);

  const PageLayout& layout() const { return layout_; }
  memory::Region& region() { return *region_; }
  const memory::Region& region() const { return *region_; }
  /// Tier kDevice: what takes rows to the pages. Else null.
  RowSink* row_sink() const { return row_sink_.get(); }

  /// Rows [from, from + count) of the columns, into one page from `to` on. A column without a
  /// source (null) is zero there: no bytes of what lay here before.
  void write(Anchor to, Rows columns, uint64_t from, uint64_t count);
  /// Each of these rows of environments, in every column: column by column, so that the host reads
  /// a column from its begin to its end.
  void write(const EnvironmentRows& given, std::span<const RowSink::RowMove> moves);
  /// Of one row, in the columns that are given. Waits for the GPU where a column lies there, as
  /// TakenArrays::fetch().
  uint32_t checksum(const EnvironmentRows& given, uint64_t row) const;

  // ---- tier kDevice: rows on their way; elsewhere there is always room, and nothing to do ----
  /// What they take of the row sink: `rows` rows of all columns, written in one call; the row of an
  /// environment, of which the columns `on_device` lie on the GPU.
  uint64_t sink_bytes_of_rows(uint64_t rows) const;
  uint64_t sink_bytes_of_environment(uint64_t on_device) const;
  /// How many rows of so many bytes the sink has room for at once when it is empty; at least one.
  uint64_t most_rows(uint64_t row_bytes) const;
  /// Whether so many bytes go on at once, as RowSink::has_room(). A step that is larger than what
  /// the sink speaks of waits where it is written.
  bool has_room(uint64_t bytes) const;
  /// `page` begins to hold other steps: see RowSink::reused().
  void reused(uint64_t page);
  /// Sends the rows written on to the region; wait() returns when it holds them.
  void flush();
  void wait();
  /// For arrays on the region's GPU; null where that is no tier kDevice.
  std::unique_ptr<TakenArrays> make_taken_arrays();

 private:
  void write(Anchor to, size_t column, const std::byte* source, uint64_t count);
  const std::byte* row_of(Rows columns, size_t column, uint64_t row) const;

  PageLayout layout_;
  uint64_t step_bytes_;  // of all columns
  std::unique_ptr<memory::Region> region_;
  std::unique_ptr<RowSink> row_sink_;
  std::vector<RowSink::DeviceColumn> device_columns_;  // of one call, under the lock
};

}  // namespace gear::store
