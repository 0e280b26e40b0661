#include "memory/region.h"

#include <sys/mman.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <utility>

#include "base/errors.h"
#include "base/log.h"
#include "memory/limits.h"
#include "memory/mapping.h"
#include "memory/shared/shared_region.h"
#include "memory/tiers.h"

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
    const int error = errno;  // host_memory() opens files
    throw base::OutOfMemory(
        base::cat("[memory] the system refused ", bytes_text(mapped_bytes), " for tier 'host' (",
                  base::errno_text(error), "); ", bytes_text(host_memory().available),
                  " are available: lower the capacity, or raise the limit on address space "
                  "(ulimit -v)"));
  }
  return Mapping(address, mapped_bytes);
}

}  // namespace

TierChoice parse_tier_choice(std::string_view text) {
  constexpr std::string_view kOfOneDevice = "device:";
  if (!text.starts_with(kOfOneDevice)) {
    return {kTiers.parse(text)};
  }
  TierChoice choice{Tier::kDevice};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data() + kOfOneDevice.size(), end, choice.device);
  if (error != std::errc() || stop != end || choice.device < 0) {
    throw base::InvalidArgument(base::cat(
        "[memory] tier '", text, "': give the index of a GPU after the colon, as in 'device:0'"));
  }
  return choice;
}

void Region::check_range(uint64_t offset, uint64_t size) const {
  GEAR_CHECK(offset <= bytes() && size <= bytes() - offset);
}

void Region::read(uint64_t offset, std::span<std::byte> out) const {
  GEAR_CHECK(host_accessible());
  check_range(offset, out.size());
  if (!out.empty()) {
    std::memcpy(out.data(), data() + offset, out.size());
  }
}

void Region::write(uint64_t offset, std::span<const std::byte> in) {
  GEAR_CHECK(host_accessible());
  check_range(offset, in.size());
  if (!in.empty()) {
    std::memcpy(data() + offset, in.data(), in.size());
  }
}

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

std::unique_ptr<Region> make_region(Tier tier, uint64_t bytes, const RegionOptions& options) {
  if (bytes == 0) {
    throw base::InvalidArgument("[memory] a region of 0 bytes: 1 or more are allowed");
  }
  if (tier != Tier::kShared && tier != Tier::kPinned && !options.name.empty()) {
    throw base::InvalidArgument(
        base::cat("[memory] name='", options.name, "' was given with tier='", kTiers.name(tier),
                  "': leave it out, or use tier='shared' or tier='pinned'"));
  }
  if (tier == Tier::kDevice) {
    return make_device_region(bytes, options.device);
  }
  refuse_more_than_total(kTiers.name(tier), bytes);
  switch (tier) {
    case Tier::kHost:
      return make_host_region(bytes);
    case Tier::kShared:
      return SharedRegion::create(options.name, bytes, options.schema_hash);
    case Tier::kPinned:
      return make_pinned_region(bytes, options);
    case Tier::kDevice:
      break;
  }
  GEAR_CHECK(!"a tier that has no factory");
}

}  // namespace gear::memory
