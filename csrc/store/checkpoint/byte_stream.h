#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "base/errors.h"

namespace gear::store {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

/// Appends plain values, little-endian and unpadded.
class ByteWriter {
 public:
  template <class T>
  void put(T value) {
    static_assert(std::is_arithmetic_v<T>);
    put_span(std::span<const T>(&value, 1));
  }

  template <class T>
  void put_span(std::span<const T> values) {
    const auto bytes = std::as_bytes(values);
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }

  void put_text(const std::string& text) {
    put(static_cast<uint64_t>(text.size()));
    put_span(std::span<const char>(text));
  }

  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

/// Reads them back; throws CorruptData when they end early.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <class T>
  T get() {
    T value;
    get_into(std::span<T>(&value, 1));
    return value;
  }

  template <class T>
  void get_into(std::span<T> values) {
    if (values.size_bytes() > bytes_.size()) {
      throw truncated();
    }
    if (!values.empty()) {
      std::memcpy(values.data(), bytes_.data(), values.size_bytes());
    }
    bytes_ = bytes_.subspan(values.size_bytes());
  }

  /// So many values, which must all still follow before any memory is taken for them.
  template <class Vector>
  void get_vector(uint64_t count, Vector& values) {
    if (count > bytes_.size() / sizeof(values[0])) {
      throw truncated();
    }
    values.resize(count);
    get_into(std::span(values));
  }

  /// A count of things of `each` bytes that must still follow: what it makes a caller allocate is
  /// in proportion to the file.
  uint64_t get_count(uint64_t each) {
    const auto count = get<uint64_t>();
    if (count > bytes_.size() / each) {
      throw truncated();
    }
    return count;
  }

  std::string get_text() {
    std::string text(get_count(1), '\0');
    get_into(std::span<char>(text));
    return text;
  }

  bool empty() const { return bytes_.empty(); }

 private:
  static base::CorruptData truncated() {
    return base::CorruptData("[checkpoint] the index ends in the middle of an entry");
  }

  std::span<const std::byte> bytes_;
};

}  // namespace gear::store
