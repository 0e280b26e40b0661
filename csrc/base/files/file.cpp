#include "base/files/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "base/errors.h"

namespace gear::base {
namespace {

// Linux moves at most 2 GiB - 4 KiB a call.
constexpr size_t kMaxCallBytes = size_t{1} << 30;

std::atomic<int64_t> g_bytes_until_fault{-1};
std::atomic<int> g_fault_code{0};

std::string_view advice(int code) {
  switch (code) {
    case ENOSPC:
    case EDQUOT:
      return ": free space or choose another directory";
    case EACCES:
    case EPERM:
    case EROFS:
      return ": check the permissions or choose another directory";
    case EMFILE:
    case ENFILE:
      return ": raise the limit on open files";
    case EIO:
      return ": check the disk";
    default:
      return "";
  }
}

// The text is made in here, after `code` was copied: to make a text may change errno.
template <class... What>
[[noreturn]] void fail(int code, const What&... what) {
  throw IoError(cat("[file] ", what..., ": ", errno_text(code), advice(code)), code);
}

template <class... What>
[[noreturn]] void fail_path(int code, const What&... what) {
  switch (code) {
    case ENOENT:
      throw InvalidArgument(cat("[file] ", what..., ": no such file or directory: check the path"));
    case ENOTDIR:
      throw InvalidArgument(cat("[file] ", what..., ": a part of the path is not a directory"));
    case EEXIST:
    case ENOTEMPTY:
      throw InvalidArgument(cat("[file] ", what..., ": it exists already: choose another path"));
    case EISDIR:
      throw InvalidArgument(
          cat("[file] ", what..., ": it is a directory: give the path of a file"));
    case ENAMETOOLONG:
      throw InvalidArgument(
          cat("[file] ", what..., ": a name in it, or all of it, is too long: shorten it"));
    case ELOOP:
      throw InvalidArgument(
          cat("[file] ", what..., ": its symbolic links lead in a circle: give another path"));
    default:
      fail(code, what...);
  }
}

// Nothing where there is none of that path.
std::optional<struct stat> look_at(const std::string& path) {
  struct stat status;
  if (::stat(path.c_str(), &status) == 0) {
    return status;
  }
  if (errno != ENOENT && errno != ENOTDIR) {
    fail_path(errno, "look at ", path, " failed");
  }
  return std::nullopt;
}

int open_retrying(const std::string& path, int flags, mode_t mode) {
  int descriptor;
  do {
    descriptor = ::open(path.c_str(), flags | O_CLOEXEC, mode);
  } while (descriptor < 0 && errno == EINTR);
  return descriptor;
}

// How many of `bytes` may be written before the injected fault; 0 raises it.
size_t before_fault(size_t bytes) {
  int64_t left = g_bytes_until_fault.load(std::memory_order_relaxed);
  if (left < 0) {
    return bytes;
  }
  const size_t allowed = std::min(bytes, static_cast<size_t>(left));
  g_bytes_until_fault.fetch_sub(static_cast<int64_t>(allowed), std::memory_order_relaxed);
  return allowed;
}

// `put(data, bytes, done)` is write(2) or pwrite(2).
template <class Put>
void write_fully(const std::string& path, std::span<const std::byte> bytes, const Put& put) {
  size_t done = 0;
  while (done < bytes.size()) {
    const size_t asked = before_fault(std::min(bytes.size() - done, kMaxCallBytes));
    ssize_t count = -1;
    if (asked == 0) {
      errno = g_fault_code.load(std::memory_order_relaxed);
    } else {
      count = put(bytes.data() + done, asked, done);
    }
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count <= 0) {
      fail(count == 0 ? EIO : errno, "write ", path, " failed after ", done, " of ", bytes.size(),
           " bytes");
    }
    done += static_cast<size_t>(count);
  }
}

}  // namespace

File File::create(const std::string& path) {
  const int descriptor = open_retrying(path, O_RDWR | O_CREAT | O_EXCL, 0666);
  if (descriptor < 0) {
    fail_path(errno, "create ", path, " failed");
  }
  return File(path, descriptor);
}

File File::open_read(const std::string& path) {
  const int descriptor = open_retrying(path, O_RDONLY, 0);
  if (descriptor < 0) {
    fail_path(errno, "open ", path, " failed");
  }
  return File(path, descriptor);
}

File::File(File&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

File& File::operator=(File&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

File::~File() {
  if (descriptor_ >= 0) {
    // Nobody is left to tell: close() is how a writer learns of an error.
    static_cast<void>(::close(descriptor_));
  }
}

void File::write(std::span<const std::byte> bytes) {
  write_fully(path_, bytes, [this](const std::byte* data, size_t count, size_t) {
    return ::write(descriptor_, data, count);
  });
}

void File::write_at(uint64_t offset, std::span<const std::byte> bytes) {
  write_fully(path_, bytes, [this, offset](const std::byte* data, size_t count, size_t done) {
    return ::pwrite(descriptor_, data, count, static_cast<off_t>(offset + done));
  });
}

size_t File::read_at(uint64_t offset, std::span<std::byte> bytes) const {
  size_t done = 0;
  while (done < bytes.size()) {
    const size_t asked = std::min(bytes.size() - done, kMaxCallBytes);
    const ssize_t count =
        ::pread(descriptor_, bytes.data() + done, asked, static_cast<off_t>(offset + done));
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count < 0) {
      fail_path(errno, "read ", path_, " failed at offset ", offset + done);
    }
    if (count == 0) {
      break;
    }
    done += static_cast<size_t>(count);
  }
  return done;
}

uint64_t File::size() const {
  struct stat status;
  if (::fstat(descriptor_, &status) != 0) {
    fail(errno, "reading the size of ", path_, " failed");
  }
  return static_cast<uint64_t>(status.st_size);
}

void File::sync() {
  // Not repeated after an error: the kernel has dropped the pages, and a second fsync would
  // succeed.
  if (::fsync(descriptor_) != 0) {
    fail(errno, "sync ", path_, " failed");
  }
}

void File::close() {
  if (descriptor_ < 0) {
    return;
  }
  // Linux frees the descriptor even if close is interrupted.
  if (::close(std::exchange(descriptor_, -1)) != 0 && errno != EINTR) {
    fail(errno, "close ", path_, " failed");
  }
}

void atomic_rename(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) {
    fail_path(errno, "rename ", from, " to ", to, " failed");
  }
}

void sync_directory(const std::string& path) {
  const int descriptor = open_retrying(path, O_RDONLY | O_DIRECTORY, 0);
  if (descriptor < 0) {
    fail_path(errno, "open directory ", path, " failed");
  }
  // Some network file systems cannot sync a directory and say EINVAL; they order by themselves.
  const int error = ::fsync(descriptor) == 0 || errno == EINVAL ? 0 : errno;
  ::close(descriptor);
  if (error != 0) {
    fail(error, "sync directory ", path, " failed");
  }
}

void remove_file(const std::string& path) {
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) {
    fail_path(errno, "remove ", path, " failed");
  }
}

void try_remove(const std::string& path) noexcept { static_cast<void>(std::remove(path.c_str())); }

bool path_exists(const std::string& path) { return look_at(path).has_value(); }

bool is_directory(const std::string& path) {
  const auto status = look_at(path);
  return status && S_ISDIR(status->st_mode);
}

void make_directory(const std::string& path) {
  if (::mkdir(path.c_str(), 0777) != 0) {
    fail(errno, "make directory ", path, " failed");
  }
}

std::vector<std::string> names_in(const std::string& path) {
  const std::unique_ptr<DIR, decltype([](DIR* open) { ::closedir(open); })> directory(
      ::opendir(path.c_str()));
  if (!directory) {
    fail_path(errno, "open directory ", path, " failed");
  }
  std::vector<std::string> names;
  for (;;) {
    errno = 0;
    const dirent* entry = ::readdir(directory.get());
    if (entry == nullptr && errno != 0) {
      fail_path(errno, "read directory ", path, " failed");
    }
    if (entry == nullptr) {
      return names;
    }
    const std::string name = entry->d_name;
    if (name != "." && name != "..") {
      names.push_back(name);
    }
  }
}

void set_write_fault(int64_t bytes_until_fault, int error_code) {
  g_fault_code.store(error_code, std::memory_order_relaxed);
  g_bytes_until_fault.store(bytes_until_fault, std::memory_order_relaxed);
}

}  // namespace gear::base
