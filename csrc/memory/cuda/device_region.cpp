#include <utility>

#include "base/cuda/cuda.h"
#include "base/errors.h"
#include "memory/device_region.h"
#include "memory/host_memory.h"

namespace gear::memory {
namespace {

class DeviceRegion final : public Region {
 public:
  DeviceRegion(base::DeviceBytes memory, base::Stream stream)
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

  base::DeviceBytes memory_;
  base::Stream stream_;  // the default stream would wait for other work of the process
};

base::DeviceBytes allocate(uint64_t bytes, int device) {
  try {
    return base::DeviceBytes(bytes, device);
  } catch (const base::OutOfMemory&) {
    const base::OnDevice on(device);
    size_t free = 0;
    size_t total = 0;
    GEAR_CUDA_TRY(cudaMemGetInfo(&free, &total));
    throw base::OutOfMemory(
        base::cat("[memory] a region of ", bytes_text(bytes), " on tier 'device' (GPU ", device,
                  ") was asked for, but of its ", bytes_text(total), " ", bytes_text(free),
                  " are free: lower the capacity, use tier='pinned' (host memory that the "
                  "GPU reads over PCIe), or end what else uses this GPU (nvidia-smi)"));
  }
}

}  // namespace

std::unique_ptr<Region> make_device_region(uint64_t bytes, int device) {
  if (device < 0) {
    device = base::current_device();
  }
  base::DeviceBytes memory = allocate(bytes, device);
  const base::OnDevice on(device);
  base::Stream stream(device);
  GEAR_CUDA_TRY(cudaMemsetAsync(memory.get(), 0, bytes, stream));
  stream.synchronize();
  return std::make_unique<DeviceRegion>(std::move(memory), std::move(stream));
}

}  // namespace gear::memory
