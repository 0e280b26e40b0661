#include <utility>

#include "base/cuda/cuda.h"
#include "base/errors.h"
#include "memory/host_memory.h"
#include "memory/host_region.h"
#include "memory/lockable.h"
#include "memory/pinned_region.h"
#include "memory/shared/shared_region.h"

namespace gear::memory {
namespace {

class PinnedRegion final : public Region {
 public:
  // Takes the region when it is locked.
  PinnedRegion(std::unique_ptr<Region>&& region, int device) : device_(device) {
    const base::OnDevice on(device);
    const cudaError_t status = cudaHostRegister(region->data(), region->bytes(),
                                                cudaHostRegisterPortable | cudaHostRegisterMapped);
    if (status == cudaErrorMemoryAllocation) {
      static_cast<void>(cudaGetLastError());
      throw base::OutOfMemory(
          base::cat("[memory] page-locking ", bytes_text(region->bytes()),
                    " for tier 'pinned' was refused; ", bytes_text(host_memory().available),
                    " are available: lower the capacity, ask the scheduler for more "
                    "memory, or use tier='host'"));
    }
    base::check_cuda(status, "cudaHostRegister");
    void* address = nullptr;
    const cudaError_t mapped = cudaHostGetDevicePointer(&address, region->data(), 0);
    if (mapped != cudaSuccess) {
      unlock(region->data());
      base::fail_cuda(mapped, "cudaHostGetDevicePointer");
    }
    device_data_ = static_cast<std::byte*>(address);
    region_ = std::move(region);
  }

  ~PinnedRegion() override {
    const base::OnDevice on(device_, std::nothrow);
    unlock(region_->data());
  }

  std::byte* data() const noexcept override { return region_->data(); }
  uint64_t bytes() const noexcept override { return region_->bytes(); }
  Tier tier() const noexcept override { return Tier::kPinned; }
  std::string_view name() const noexcept override { return region_->name(); }
  void hide_name() noexcept override { region_->hide_name(); }
  std::byte* device_data() const noexcept override { return device_data_; }

 private:
  // Fails only when the GPU is lost or the process ends, and the pages go with the mapping then.
  static void unlock(void* data) noexcept {
    static_cast<void>(cudaHostUnregister(data));
    static_cast<void>(cudaGetLastError());
  }

  std::unique_ptr<Region> region_;
  int device_;  // whose context holds the lock
  std::byte* device_data_ = nullptr;
};

int gpu_of(int wanted) { return wanted < 0 ? base::current_device() : wanted; }

}  // namespace

std::unique_ptr<Region> make_pinned_region(uint64_t bytes, const RegionOptions& options) {
  const int device = gpu_of(options.device);  // no GPU is reported before memory is taken
  refuse_more_than_lockable(bytes);
  if (options.name.empty()) {
    return std::make_unique<PinnedRegion>(make_host_region(bytes), device);
  }
  return std::make_unique<PinnedRegion>(
      SharedRegion::create(options.name, bytes, options.schema_hash), device);
}

std::unique_ptr<Region> pin_region(std::unique_ptr<Region>&& region, int device) {
  if (region->tier() != Tier::kHost && region->tier() != Tier::kShared) {
    throw base::InvalidArgument(
        base::cat("[memory] a region of tier '", tier_name(region->tier()),
                  "' cannot be page-locked: give one of tier 'host' or 'shared'"));
  }
  device = gpu_of(device);
  refuse_more_than_lockable(region->bytes());
  return std::make_unique<PinnedRegion>(std::move(region), device);
}

}  // namespace gear::memory
