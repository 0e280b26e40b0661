#include "memory/mapping.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <limits>

#include "base/errors.h"

namespace gear::memory {
namespace {

void unmap(std::byte* address, size_t bytes) {
  // Fails only for arguments that are no mapping: a defect, and no reason to throw in a destructor.
  if (bytes > 0) {
    static_cast<void>(::munmap(address, bytes));
  }
}

}  // namespace

Mapping::~Mapping() { unmap(data(), bytes_); }

void Mapping::trim(size_t begin, size_t bytes) {
  GEAR_CHECK(begin <= bytes_ && bytes <= bytes_ - begin);
  unmap(data(), begin);
  unmap(data() + begin + bytes, bytes_ - begin - bytes);
  address_ = data() + begin;
  bytes_ = bytes;
}

void Mapping::allow_writes(bool allowed) {
  if (::mprotect(address_, bytes_, allowed ? PROT_READ | PROT_WRITE : PROT_READ) != 0) {
    throw base::OutOfMemory(base::cat("[memory] the system refused to ", allowed ? "" : "dis",
                                      "allow writes to ", bytes_,
                                      " mapped bytes: ", base::errno_text(errno)));
  }
}

size_t whole_pages(size_t bytes) {
  static const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  if (bytes > std::numeric_limits<size_t>::max() - page) {
    throw base::OutOfMemory(
        base::cat("[memory] a region of ", bytes, " bytes exceeds the address space"));
  }
  return (bytes + page - 1) / page * page;
}

}  // namespace gear::memory
