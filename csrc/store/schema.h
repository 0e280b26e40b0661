#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"

namespace gear::store {

/// One named array per step. `shape` is empty for a scalar.
struct Column {
  std::string name;
  std::vector<int64_t> shape;
  base::DType dtype;

  /// Bytes of one step of this column: product of shape times dtype_bytes(dtype).
  uint64_t step_bytes() const;

  bool operator==(const Column&) const = default;
};

/// The columns of a step, in order; immutable once made.
///
/// Two processes that share memory or a checkpoint compare `hash()`: it covers name, dtype, shape
/// and order of every column.
class Schema {
 public:
  static constexpr size_t kMaxColumns = 64;  ///< one bit a column in Episode::closing_columns

  /// Throws InvalidArgument for: no column, more than kMaxColumns, a repeated, empty or ill-formed
  /// name (letters, digits and _ . / - up to 63, starting with a letter or _), the reserved name
  /// `priority`, a dimension below 1, a step of 4 GiB or more.
  explicit Schema(std::vector<Column> columns);

  const std::vector<Column>& columns() const { return columns_; }
  size_t size() const { return columns_.size(); }
  const Column& operator[](size_t index) const { return columns_[index]; }

  /// Position of a column; throws InvalidArgument listing the names there are.
  size_t index_of(std::string_view name) const;

  /// Bytes of one step over all columns, without padding.
  uint64_t step_bytes() const { return step_bytes_; }

  /// 16 hexadecimal digits: FNV-1a (64 bit) of text().
  std::string hash() const;

  /// One line a column, "name dtype d0,d1,...\n"; what a checkpoint stores and parse() reads.
  std::string text() const;
  static Schema parse(std::string_view text);

  bool operator==(const Schema&) const = default;

 private:
  std::vector<Column> columns_;
  uint64_t step_bytes_ = 0;
};

}  // namespace gear::store
