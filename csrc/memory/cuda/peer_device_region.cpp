#include "memory/peer_device_region.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <set>
#include <utility>

#include "base/cuda/cuda.h"
#include "base/errors.h"
#include "base/gpu/devices.h"

namespace gear::memory {
namespace {

// What this process calls the GPU; -1: it does not see it.
int index_of(const std::array<std::byte, 16>& uuid) {
  for (int i = 0; i < base::device_count(); ++i) {
    if (base::device_uuid(i) == uuid) {
      return i;
    }
  }
  return -1;
}

// Memory of a GPU that another one reads: of this process, or mapped from its owner.
class PeerDeviceRegion final : public Region {
 public:
  PeerDeviceRegion(const RegionAddress& address, int reader, int owner)
      : bytes_(address.bytes), reader_(reader), owner_(owner) {
    if (address.owner == this_process()) {
      open_peer_access(reader, owner);
      data_ = reinterpret_cast<std::byte*>(address.address);
      return;
    }
    const base::OnDevice on(reader);
    cudaIpcMemHandle_t handle;
    static_assert(sizeof(handle) == sizeof(address.handle));
    std::memcpy(&handle, address.handle.data(), sizeof(handle));
    const cudaError_t status =
        cudaIpcOpenMemHandle(&opened_, handle, cudaIpcMemLazyEnablePeerAccess);
    if (status != cudaSuccess) {
      static_cast<void>(cudaGetLastError());
      throw base::InvalidArgument(base::cat(
          "[memory] GPU ", reader, " cannot map the memory that process ", address.owner.pid,
          " keeps on GPU ", owner, ": ", cudaGetErrorString(status), " (", cudaGetErrorName(status),
          "): its rows can travel as messages; to read them by pointer, GPUs must be linked "
          "(nvidia-smi topo -m) and processes must share their IPC and PID namespaces"));
    }
    data_ = static_cast<std::byte*>(opened_);
  }

  // The owner, or the GPU, may be gone: then the driver has closed it.
  ~PeerDeviceRegion() override {
    if (opened_ == nullptr) {
      return;
    }
    try {
      const base::OnDevice on(reader_);
      static_cast<void>(cudaIpcCloseMemHandle(opened_));
    } catch (const base::Error&) {
    }
    static_cast<void>(cudaGetLastError());
  }

  std::byte* data() const noexcept override { return data_; }
  uint64_t bytes() const noexcept override { return bytes_; }
  Tier tier() const noexcept override { return Tier::kDevice; }
  std::string_view name() const noexcept override { return {}; }
  bool host_accessible() const noexcept override { return false; }
  std::byte* device_data() const noexcept override { return data_; }
  int device() const noexcept override { return owner_; }

 private:
  uint64_t bytes_;
  int reader_;
  int owner_;
  void* opened_ = nullptr;
  std::byte* data_ = nullptr;
};

}  // namespace

void describe_device_region(const Region& region, RegionAddress& address) {
  address.gpu = base::device_uuid(region.device());
  address.address = reinterpret_cast<uint64_t>(region.data());
  const base::OnDevice on(region.device());
  cudaIpcMemHandle_t handle;
  // Refused on some virtual GPUs and systems: such memory is read by its own process alone.
  address.shareable = cudaIpcGetMemHandle(&handle, region.data()) == cudaSuccess;
  static_cast<void>(cudaGetLastError());
  if (address.shareable) {
    std::memcpy(address.handle.data(), &handle, sizeof(handle));
  }
}

std::unique_ptr<Region> open_device_region(const RegionAddress& address, int device) {
  const int owner = index_of(address.gpu);
  if (owner < 0) {
    throw base::InvalidArgument(base::cat(
        "[memory] process ", address.owner.pid,
        " keeps its rows on a GPU that this process "
        "does not see; it sees ",
        base::device_names(),
        ": let every rank of a node see all GPUs of the job (CUDA_VISIBLE_DEVICES, or Slurm's "
        "--gpus-per-task and --gpu-bind) and choose one by its local rank"));
  }
  return std::make_unique<PeerDeviceRegion>(address, device < 0 ? owner : device, owner);
}

void open_peer_access(int reader, int owner) {
  if (reader == owner) {
    return;
  }
  static std::mutex mutex;
  static std::set<std::pair<int, int>> opened;
  const std::lock_guard guard(mutex);
  if (opened.contains({reader, owner})) {
    return;
  }
  const base::OnDevice on(reader);
  int possible = 0;
  GEAR_CUDA_TRY(cudaDeviceCanAccessPeer(&possible, reader, owner));
  if (possible == 0) {
    throw base::InvalidArgument(
        base::cat("[memory] device 'cuda:", reader, "' cannot read the memory of GPU ", owner,
                  ", where tier 'device' keeps this buffer: use device='cuda:", owner,
                  "', or tier='pinned'"));
  }
  const cudaError_t status = cudaDeviceEnablePeerAccess(owner, 0);
  if (status == cudaErrorPeerAccessAlreadyEnabled) {  // by a framework
    static_cast<void>(cudaGetLastError());
  } else {
    base::check_cuda(status, "cudaDeviceEnablePeerAccess");
  }
  opened.insert({reader, owner});
}

}  // namespace gear::memory
