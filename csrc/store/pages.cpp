#include "store/pages.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

#include "base/files/crc32c.h"

namespace gear::store {
namespace {

bool is_on_device(const Pages::EnvironmentRows& given, size_t column) {
  return (given.on_device >> column & 1) != 0;
}

}  // namespace

Pages::Pages(const PageLayout& layout, std::unique_ptr<memory::Region> region)
    : layout_(layout),
      step_bytes_(std::accumulate(layout.step_bytes.begin(), layout.step_bytes.end(), uint64_t{0})),
      region_(std::move(region)) {
  if (!region_->host_accessible()) {
    row_sink_ = make_row_sink(*region_, layout_.page_bytes);
  }
}

void Pages::write(Anchor to, size_t column, const std::byte* source, uint64_t count) {
  const uint64_t bytes = count * layout_.step_bytes[column];
  const uint64_t offset = layout_.offset(to.page, column, to.row);
  if (row_sink_) {
    row_sink_->write(offset, source, bytes);
  } else if (source != nullptr) {
    std::memcpy(region_->data() + offset, source, bytes);
  } else {
    std::memset(region_->data() + offset, 0, bytes);
  }
}

void Pages::write(Anchor to, Rows columns, uint64_t from, uint64_t count) {
  for (size_t c = 0; c < columns.size(); ++c) {
    write(to, c, row_of(columns, c, from), count);
  }
}

void Pages::write(const EnvironmentRows& given, std::span<const RowSink::RowMove> moves) {
  for (size_t c = 0; c < given.columns.size(); ++c) {
    if (is_on_device(given, c)) {
      continue;
    }
    for (const RowSink::RowMove& move : moves) {
      write({move.page, move.row}, c, row_of(given.columns, c, move.source), 1);
    }
  }
  if (given.on_device == 0) {
    return;
  }
  device_columns_.clear();
  for (size_t c = 0; c < given.columns.size(); ++c) {
    if (is_on_device(given, c)) {
      device_columns_.push_back(
          {given.columns[c], layout_.column_offset[c], layout_.step_bytes[c]});
    }
  }
  given.taken->write_rows(device_columns_, moves);
}

uint32_t Pages::checksum(const EnvironmentRows& given, uint64_t row) const {
  uint32_t checksum = 0;
  std::vector<std::byte> fetched;
  for (size_t c = 0; c < given.columns.size(); ++c) {
    const std::byte* value = row_of(given.columns, c, row);
    if (value == nullptr) {
      continue;
    }
    if (is_on_device(given, c)) {
      fetched.resize(layout_.step_bytes[c]);
      given.taken->fetch(fetched, value);
      value = fetched.data();
    }
    checksum = base::crc32c(value, layout_.step_bytes[c], checksum);
  }
  return checksum;
}

uint64_t Pages::sink_bytes_of_rows(uint64_t rows) const {
  return rows * step_bytes_ + layout_.step_bytes.size() * RowSink::kCallBytes;
}

uint64_t Pages::sink_bytes_of_environment(uint64_t on_device) const {
  uint64_t bytes = on_device == 0 ? 0 : sizeof(RowSink::RowMove);
  for (size_t c = 0; c < layout_.step_bytes.size(); ++c) {
    bytes += (on_device >> c & 1) != 0 ? 0 : layout_.step_bytes[c] + RowSink::kCallBytes;
  }
  return bytes;
}

uint64_t Pages::most_rows(uint64_t row_bytes) const {
  return row_sink_ ? std::max<uint64_t>(1, RowSink::kMostBytes / row_bytes)
                   : std::numeric_limits<uint64_t>::max();
}

bool Pages::has_room(uint64_t bytes) const {
  return !row_sink_ || row_sink_->has_room(std::min(bytes, RowSink::kMostBytes));
}

void Pages::reused(uint64_t page) {
  if (row_sink_) {
    row_sink_->reused(page);
  }
}

void Pages::flush() {
  if (row_sink_) {
    row_sink_->flush();
  }
}

void Pages::wait() {
  if (row_sink_) {
    row_sink_->wait();
  }
}

std::unique_ptr<TakenArrays> Pages::make_taken_arrays() {
  return row_sink_ ? store::make_taken_arrays(*row_sink_) : nullptr;
}

const std::byte* Pages::row_of(Rows columns, size_t column, uint64_t row) const {
  return columns[column] == nullptr ? nullptr : columns[column] + row * layout_.step_bytes[column];
}

}  // namespace gear::store
