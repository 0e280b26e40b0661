#include "memory/shared/shared_object.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/errors.h"
#include "memory/limits.h"

namespace gear::memory {
namespace {

// A signal makes fallocate give back what the call had reserved: small calls always get on.
constexpr uint64_t kReserveStep = uint64_t{256} << 20;

template <class Call>
auto retrying(const Call& call) {
  decltype(call()) result;
  do {
    result = call();
  } while (result < 0 && errno == EINTR);
  return result;
}

[[noreturn]] void fail(std::string_view what, const std::string& name, int code) {
  throw base::IoError(
      base::cat("[memory] ", what, " shared memory ", name, " failed: ", base::errno_text(code),
                ": check that /dev/shm is mounted and writable"),
      code);
}

bool same_object(int descriptor, int other) noexcept {
  struct stat mine;
  struct stat theirs;
  return ::fstat(descriptor, &mine) == 0 && ::fstat(other, &theirs) == 0 &&
         mine.st_dev == theirs.st_dev && mine.st_ino == theirs.st_ino;
}

}  // namespace

std::optional<SharedObject> SharedObject::create(const std::string& object_name) {
  const int descriptor =
      retrying([&] { return ::shm_open(object_name.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600); });
  if (descriptor >= 0) {
    return SharedObject(object_name, descriptor);
  }
  if (errno == EEXIST) {
    return std::nullopt;
  }
  fail("creating", object_name, errno);
}

std::optional<SharedObject> SharedObject::open(const std::string& object_name) {
  const int descriptor = retrying([&] { return ::shm_open(object_name.c_str(), O_RDWR, 0); });
  if (descriptor >= 0) {
    return SharedObject(object_name, descriptor);
  }
  if (errno == ENOENT) {
    return std::nullopt;
  }
  if (errno == EACCES) {
    throw base::InvalidArgument(base::cat("[memory] shared memory ", object_name,
                                          " belongs to another user: choose another name"));
  }
  fail("opening", object_name, errno);
}

SharedObject::SharedObject(SharedObject&& other) noexcept
    : name_(std::move(other.name_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

SharedObject& SharedObject::operator=(SharedObject&& other) noexcept {
  std::swap(name_, other.name_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

SharedObject::~SharedObject() {
  if (descriptor_ >= 0) {
    static_cast<void>(::close(descriptor_));
  }
}

void SharedObject::reserve(uint64_t bytes) {
  struct statvfs shm;
  if (::fstatvfs(descriptor_, &shm) != 0) {
    fail("reading the free space for", name_, errno);
  }
  // Asked first, so that a request that cannot be met does not starve others while it fails. A file
  // system without blocks is one without a limit of its own.
  const uint64_t free_bytes = uint64_t{shm.f_bavail} * shm.f_frsize;
  int error = shm.f_blocks != 0 && bytes > free_bytes + size() ? ENOSPC : 0;
  for (uint64_t begin = 0; begin < bytes && error == 0;) {
    const uint64_t step = std::min(kReserveStep, bytes - begin);
    // ftruncate alone would promise memory that /dev/shm does not have.
    error = ::posix_fallocate(descriptor_, static_cast<off_t>(begin), static_cast<off_t>(step));
    if (error == EINTR) {
      error = 0;
    } else {
      begin += step;
    }
  }
  if (error == ENOSPC || error == ENOMEM || error == EFBIG) {
    throw base::OutOfMemory(base::cat(
        "[memory] no room for a shared region of ", bytes_text(bytes), ": /dev/shm has ",
        bytes_text(free_bytes), " free of ", bytes_text(uint64_t{shm.f_blocks} * shm.f_frsize),
        "; lower the capacity, remove what is left in /dev/shm, mount it with a "
        "larger size, or use tier='host'"));
  }
  if (error != 0) {
    fail("reserving", name_, error);
  }
}

uint64_t SharedObject::size() const {
  struct stat status;
  if (::fstat(descriptor_, &status) != 0) {
    fail("reading the size of", name_, errno);
  }
  return static_cast<uint64_t>(status.st_size);
}

void SharedObject::write_at_start(std::span<const std::byte> bytes) {
  const ssize_t count =
      retrying([&] { return ::pwrite(descriptor_, bytes.data(), bytes.size(), 0); });
  if (count == static_cast<ssize_t>(bytes.size())) {
    return;
  }
  const int code = count < 0 ? errno : ENOSPC;
  if (code == ENOSPC || code == ENOMEM) {
    throw base::OutOfMemory(
        base::cat("[memory] /dev/shm has no room for ", bytes.size(), " bytes of ", name_,
                  ": remove what is left in it, mount it with a larger size, or use "
                  "tier='host'"));
  }
  fail("writing", name_, code);
}

bool SharedObject::read_at_start(std::span<std::byte> bytes) const {
  const ssize_t count =
      retrying([&] { return ::pread(descriptor_, bytes.data(), bytes.size(), 0); });
  if (count < 0) {
    fail("reading", name_, errno);
  }
  return count == static_cast<ssize_t>(bytes.size());
}

Mapping SharedObject::map(size_t bytes) const {
  void* address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, 0);
  if (address == MAP_FAILED) {
    if (errno == ENOMEM) {
      throw base::OutOfMemory(base::cat("[memory] the system refused to map ", bytes_text(bytes),
                                        " of shared memory ", name_,
                                        ": raise the limit on address space (ulimit -v)"));
    }
    fail("mapping", name_, errno);
  }
  return Mapping(address, bytes);
}

bool SharedObject::is_mine() const noexcept {
  struct stat status;
  return ::fstat(descriptor_, &status) == 0 && status.st_uid == ::geteuid();
}

bool SharedObject::unlink() noexcept { return unlink_under(LOCK_EX); }

bool SharedObject::try_unlink() noexcept { return unlink_under(LOCK_EX | LOCK_NB); }

// The lock is on the object, not on the name: who holds it and finds the name to be this object
// knows that nobody else removes that name meanwhile.
bool SharedObject::unlink_under(int lock) noexcept {
  if (retrying([&] { return ::flock(descriptor_, lock); }) != 0) {
    return false;
  }
  const int current = retrying([&] { return ::shm_open(name_.c_str(), O_RDWR, 0); });
  bool removed = false;
  if (current >= 0) {
    removed = same_object(descriptor_, current) && ::shm_unlink(name_.c_str()) == 0;
    static_cast<void>(::close(current));
  }
  static_cast<void>(::flock(descriptor_, LOCK_UN));
  return removed;
}

}  // namespace gear::memory
