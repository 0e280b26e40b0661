#include "memory/host_region.h"

#include <sys/mman.h>

#include <cerrno>
#include <utility>

#include "base/errors.h"
#include "base/log.h"
#include "memory/host_memory.h"
#include "memory/mapping.h"

namespace gear::memory {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kHugePagesFrom = size_t{4} << 20;

class HostRegion final : public Region {
 public:
  HostRegion(Mapping mapping, uint64_t bytes) : mapping_(std::move(mapping)), bytes_(bytes) {}

  std::byte* data() const noexcept override { return mapping_.data(); }
  uint64_t bytes() const noexcept override { return bytes_; }
  Tier tier() const noexcept override { return Tier::kHost; }
  std::string_view name() const noexcept override { return {}; }

 private:
  Mapping mapping_;
  uint64_t bytes_;
};

Mapping map_anonymous(size_t mapped_bytes) {
  void* address =
      ::mmap(nullptr, mapped_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) {
    throw base::OutOfMemory(base::cat(
        "[memory] a region of ", bytes_text(mapped_bytes), " on tier 'host' was refused (",
        base::errno_text(errno), "); ", bytes_text(host_memory().available),
        " are available: lower the capacity, or raise the limit on address space "
        "(ulimit -v)"));
  }
  return Mapping(address, mapped_bytes);
}

}  // namespace

std::unique_ptr<Region> make_host_region(uint64_t bytes) {
  const size_t mapped_bytes = whole_pages(bytes);
  if (mapped_bytes < kHugePagesFrom) {
    return std::make_unique<HostRegion>(map_anonymous(mapped_bytes), bytes);
  }
  Mapping mapping = map_anonymous(whole_pages(mapped_bytes + kHugePage));
  const size_t past = reinterpret_cast<uintptr_t>(mapping.data()) % kHugePage;
  mapping.trim(past == 0 ? 0 : kHugePage - past, mapped_bytes);
  // A kernel built without huge pages refuses; ordinary pages do as well.
  if (::madvise(mapping.data(), mapped_bytes, MADV_HUGEPAGE) != 0) {
    base::log(base::Level::kDebug,
              base::cat("[memory] no huge pages for a host region: ", base::errno_text(errno)));
  }
  return std::make_unique<HostRegion>(std::move(mapping), bytes);
}

}  // namespace gear::memory
