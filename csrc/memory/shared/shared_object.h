#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "memory/mapping.h"

namespace gear::memory {

/// A POSIX shared-memory object: an open descriptor and the name that it was opened by. Wraps the
/// system calls one to one; what the bytes mean is SharedRegion's business. Whatever the system
/// refuses is thrown as IoError, if nothing else is said.
class SharedObject {
 public:
  /// Creates the object, mode 0600 and empty; nothing if the name is taken.
  static std::optional<SharedObject> create(const std::string& object_name);

  /// Opens it for reading and writing; nothing if there is none of that name. Throws
  /// InvalidArgument if it belongs to another user.
  static std::optional<SharedObject> open(const std::string& object_name);

  SharedObject(SharedObject&& other) noexcept;
  SharedObject& operator=(SharedObject&& other) noexcept;
  ~SharedObject();

  /// Reserves [0, bytes) for good. Throws OutOfMemory if /dev/shm has not that much.
  void reserve(uint64_t bytes);

  uint64_t size() const;
  void write_at_start(std::span<const std::byte> bytes);

  /// Fills `bytes` from the start of the object; false if the object is shorter.
  bool read_at_start(std::span<std::byte> bytes) const;

  /// Maps [0, bytes) for reading and writing.
  Mapping map(size_t bytes) const;

  /// Removes the name if it still means this very object, not one made since by somebody else; two
  /// processes that find the same stale object cannot remove each other's fresh one. False if the
  /// name means something else or nothing.
  bool unlink() noexcept;

  /// The same at once: false, too, while somebody holds the object's lock, who may be anybody who
  /// can open it.
  bool try_unlink() noexcept;

  /// Whether it belongs to the user that this process runs as.
  bool is_mine() const noexcept;

  const std::string& name() const noexcept { return name_; }

 private:
  SharedObject(std::string name, int descriptor)
      : name_(std::move(name)), descriptor_(descriptor) {}

  bool unlink_under(int lock) noexcept;

  std::string name_;
  int descriptor_;
};

}  // namespace gear::memory
