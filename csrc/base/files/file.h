#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace gear::base {

/// The files of checkpoints: the one place where the core touches a file system, so that faults can
/// be injected (set_write_fault).
///
/// Errors: InvalidArgument if the path cannot be right (missing, exists already, not a directory,
/// a name that is too long);
/// IoError with the errno for what the system refuses, in the form
///     [file] write /path failed after N of M bytes: No space left on device: free space or ...

/// An open file: one owner, movable, closed by the destructor. Not for several threads at once,
/// except read_at and write_at, which share no position.
class File {
 public:
  /// A fresh file for writing and reading, mode 0666 less the umask; the path must not exist.
  static File create(const std::string& path);

  /// An existing file for reading.
  static File open_read(const std::string& path);

  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  ~File();

  /// Writes all bytes after those written before, in as many system calls as it takes.
  void write(std::span<const std::byte> bytes);

  /// Writes all bytes at `offset`; what write() appends to stays where it was.
  void write_at(uint64_t offset, std::span<const std::byte> bytes);

  /// Reads into `bytes` from `offset`; returns how many, fewer than asked only at the file's end.
  size_t read_at(uint64_t offset, std::span<std::byte> bytes) const;

  uint64_t size() const;

  /// Returns when the contents are on stable storage (fsync).
  void sync();

  /// Closes and reports what the system held back until then (network file systems do). The
  /// destructor cannot: after writing, sync() and close(). Closing twice is allowed.
  void close();

  const std::string& path() const noexcept { return path_; }

 private:
  File(std::string path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}

  std::string path_;
  int descriptor_;
};

/// Gives `from` the name `to` in one step that a crash cannot split (rename(2)): a file replaces a
/// file, a directory replaces an empty directory. Durable after sync_directory of the parent.
void atomic_rename(const std::string& from, const std::string& to);

/// Makes creations, renames and removals inside the directory `path` durable.
void sync_directory(const std::string& path);

/// Removes a file; one that is not there is no error.
void remove_file(const std::string& path);
/// Removes a file or an empty directory if it can.
void try_remove(const std::string& path) noexcept;

/// Whether something, or a directory, has this path. Throws where the system does not say.
bool path_exists(const std::string& path);
bool is_directory(const std::string& path);

/// Mode 0777 less the umask. Throws IoError, also if its parent is not there.
void make_directory(const std::string& path);

/// The names in a directory, but for "." and "..", in no order.
std::vector<std::string> names_in(const std::string& path);

/// For tests: after `bytes_until_fault` more bytes, written by all Files of the process together,
/// every write fails with `error_code` (ENOSPC, EIO, ...), leaving a torn file as a full disk does.
/// A negative count, the state at start, disarms it.
void set_write_fault(int64_t bytes_until_fault, int error_code);

}  // namespace gear::base
