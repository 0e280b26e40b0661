#include "store/schema.h"

#include <charconv>
#include <cstdio>
#include <set>

#include "base/errors.h"

namespace gear::store {
namespace {

constexpr uint64_t kMaxStepBytes = (uint64_t{1} << 32) - 1;

bool well_formed(std::string_view name) {
  if (name.empty() || name.size() > 63) {
    return false;
  }
  auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  if (!letter(name[0])) {
    return false;
  }
  for (char c : name) {
    if (!letter(c) && !(c >= '0' && c <= '9') && c != '.' && c != '/' && c != '-') {
      return false;
    }
  }
  return true;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text;
  for (size_t i = 0; i < shape.size(); ++i) {
    text += (i > 0 ? "," : "") + std::to_string(shape[i]);  // as in every locale: it is hashed
  }
  return text;
}

void check(const Column& column) {
  if (!well_formed(column.name)) {
    throw base::InvalidArgument(
        base::cat("[schema] column name '", column.name,
                  "': 1 to 63 letters, digits and _ . / - starting with a letter or _ "
                  "are allowed; rename the column"));
  }
  if (column.name == "priority") {
    throw base::InvalidArgument(
        "[schema] column name 'priority': writers have an argument of that name; rename the "
        "column");
  }
  uint64_t bytes = base::dtype_bytes(column.dtype);
  for (int64_t dim : column.shape) {
    if (dim < 1) {
      throw base::InvalidArgument(base::cat("[schema] column '", column.name, "' has shape (",
                                            shape_text(column.shape),
                                            "): every dimension must be 1 or more"));
    }
    if (static_cast<uint64_t>(dim) > kMaxStepBytes / bytes) {
      throw base::InvalidArgument(base::cat("[schema] column '", column.name, "' with shape (",
                                            shape_text(column.shape),
                                            ") takes 4 GiB or more a step: split it"));
    }
    bytes *= static_cast<uint64_t>(dim);
  }
}

}  // namespace

uint64_t Column::step_bytes() const {
  uint64_t bytes = base::dtype_bytes(dtype);
  for (int64_t dim : shape) {
    bytes *= static_cast<uint64_t>(dim);
  }
  return bytes;
}

Schema::Schema(std::vector<Column> columns) : columns_(std::move(columns)) {
  if (columns_.empty() || columns_.size() > kMaxColumns) {
    throw base::InvalidArgument(base::cat("[schema] ", columns_.size(), " columns given: 1 to ",
                                          kMaxColumns,
                                          " are allowed; join small columns into one"));
  }
  std::set<std::string_view> names;
  for (const Column& column : columns_) {
    check(column);
    if (!names.insert(column.name).second) {
      throw base::InvalidArgument(
          base::cat("[schema] column '", column.name, "' is given twice: names must differ"));
    }
    step_bytes_ += column.step_bytes();
  }
  if (step_bytes_ > kMaxStepBytes) {
    throw base::InvalidArgument(
        base::cat("[schema] a step of ", step_bytes_, " bytes: less than 4 GiB is allowed"));
  }
}

size_t Schema::index_of(std::string_view name) const {
  std::string known;
  for (size_t i = 0; i < columns_.size(); ++i) {
    if (columns_[i].name == name) {
      return i;
    }
    known += base::cat(i ? ", " : "", columns_[i].name);
  }
  throw base::InvalidArgument(base::cat("[schema] no column '", name, "': the schema has ", known));
}

std::string Schema::text() const {
  std::string text;
  for (const Column& column : columns_) {
    text += base::cat(column.name, ' ', base::kDTypes.name(column.dtype), ' ',
                      shape_text(column.shape), '\n');
  }
  return text;
}

std::string Schema::hash() const {
  uint64_t hash = 0xcbf29ce484222325ULL;
  for (char c : text()) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  }
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(hash));
  return digits;
}

Schema Schema::parse(std::string_view text) {
  std::vector<Column> columns;
  while (!text.empty()) {
    const size_t line_end = text.find('\n');
    const std::string_view line = text.substr(0, line_end);
    const size_t first = line.find(' ');
    const size_t second = first == line.npos ? line.npos : line.find(' ', first + 1);
    if (line_end == text.npos || second == line.npos) {
      throw base::CorruptData(base::cat("[schema] line '", line, "' is not 'name dtype shape'"));
    }
    Column column{std::string(line.substr(0, first)),
                  {},
                  base::kDTypes.parse(line.substr(first + 1, second - first - 1))};
    const char* p = line.data() + second + 1;
    const char* end = line.data() + line.size();
    while (p < end) {
      int64_t dim = 0;
      const auto [next, error] = std::from_chars(p, end, dim);
      if (error != std::errc() || (next < end && (*next != ',' || next + 1 == end))) {
        throw base::CorruptData(base::cat("[schema] line '", line, "' has a malformed shape"));
      }
      column.shape.push_back(dim);
      p = next + (next < end);
    }
    columns.push_back(std::move(column));
    text.remove_prefix(line_end + 1);
  }
  return Schema(std::move(columns));
}

}  // namespace gear::store
