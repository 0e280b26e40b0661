#include "memory/tiers.h"

#include <utility>

#include "base/cuda/cuda.h"
#include "base/errors.h"
#include "memory/limits.h"
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
          base::cat("[memory] the system refused to page-lock ", bytes_text(region->bytes()),
                    " for tier 'pinned'; ", bytes_text(host_memory().available),
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

class DeviceRegion final : public Region {
 public:
  DeviceRegion(base::DeviceArray<std::byte> memory, base::Stream stream)
      : memory_(std::move(memory)), stream_(std::move(stream)) {}

  std::byte* data() const noexcept override { return static_cast<std::byte*>(memory_.get()); }
  uint64_t bytes() const noexcept override { return memory_.bytes(); }
  Tier tier() const noexcept override { return Tier::kDevice; }
  std::string_view name() const noexcept override { return {}; }
  bool host_accessible() const noexcept override { return false; }
  std::byte* device_data() const noexcept override { return data(); }
  int device() const noexcept override { return memory_.device(); }

  void read(uint64_t offset, std::span<std::byte> out) const override {
    check_range(offset, out.size());
    copy(out.data(), data() + offset, out.size(), cudaMemcpyDeviceToHost);
  }

  void write(uint64_t offset, std::span<const std::byte> in) override {
    check_range(offset, in.size());
    copy(data() + offset, in.data(), in.size(), cudaMemcpyHostToDevice);
  }

 private:
  void copy(void* to, const void* from, uint64_t bytes, cudaMemcpyKind kind) const {
    if (bytes == 0) {
      return;
    }
    const base::OnDevice on(device());
    GEAR_CUDA_TRY(cudaMemcpyAsync(to, from, bytes, kind, stream_));
    stream_.synchronize();
  }

  base::DeviceArray<std::byte> memory_;
  base::Stream stream_;  // the default stream would wait for other work of the process
};

base::DeviceArray<std::byte> allocate(uint64_t bytes, int device) {
  try {
    return base::DeviceArray<std::byte>(bytes, device);
  } catch (const base::OutOfMemory&) {
    const base::OnDevice on(device);
    size_t free = 0;
    size_t total = 0;
    GEAR_CUDA_TRY(cudaMemGetInfo(&free, &total));
    throw base::OutOfMemory(
        base::cat("[memory] no room for ", bytes_text(bytes), " on tier 'device': of GPU ", device,
                  "'s ", bytes_text(total), ", ", bytes_text(free),
                  " are free; lower the capacity, use tier='pinned' (host memory that the "
                  "GPU reads over PCIe), or end what else uses this GPU (nvidia-smi)"));
  }
}

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
        base::cat("[memory] a region of tier '", kTiers.name(region->tier()),
                  "' cannot be page-locked: give one of tier 'host' or 'shared'"));
  }
  device = gpu_of(device);
  refuse_more_than_lockable(region->bytes());
  return std::make_unique<PinnedRegion>(std::move(region), device);
}

std::unique_ptr<Region> make_device_region(uint64_t bytes, int device) {
  device = gpu_of(device);
  base::DeviceArray<std::byte> memory = allocate(bytes, device);
  const base::OnDevice on(device);
  base::Stream stream(device);
  GEAR_CUDA_TRY(cudaMemsetAsync(memory.get(), 0, bytes, stream));
  stream.synchronize();
  return std::make_unique<DeviceRegion>(std::move(memory), std::move(stream));
}

}  // namespace gear::memory
