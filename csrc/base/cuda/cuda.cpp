#include <dlfcn.h>

#include "base/cuda/cuda.h"
#include "base/errors.h"
#include "base/gpu/devices.h"

namespace gear::base {
namespace {

// Of the driver: the context is what tells whether a thread has a GPU at all, which the runtime
// hides by making one.
struct DriverCalls {
  int (*get_context)(void**) = nullptr;
  int (*set_context)(void*) = nullptr;
};

const DriverCalls& driver() {
  static const DriverCalls calls = [] {
    DriverCalls found;
    if (void* library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL)) {
      found.get_context = reinterpret_cast<int (*)(void**)>(::dlsym(library, "cuCtxGetCurrent"));
      found.set_context = reinterpret_cast<int (*)(void*)>(::dlsym(library, "cuCtxSetCurrent"));
    }
    return found;
  }();
  return calls;
}

// After these nothing that was put on the GPU runs any more: it failed, or its context is gone.
bool is_lost(cudaError_t status) {
  switch (status) {
    case cudaErrorCudartUnloading:
    case cudaErrorDevicesUnavailable:
    case cudaErrorNoDevice:
    case cudaErrorDeviceUninitialized:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorInvalidResourceHandle:  // of an event: cudaDeviceReset took it
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorContextIsDestroyed:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorExternalDevice:
    case cudaErrorMpsClientTerminated:
    case cudaErrorUnknown:
      return true;
    default:
      return false;
  }
}

std::string what_to_do(cudaError_t status) {
  switch (status) {
    case cudaErrorInsufficientDriver:
      return driver_version() == 0
                 ? "this machine shows no NVIDIA driver: run on a node with a GPU, or use "
                   "tier='host' and device='cpu'"
                 : cat("the driver supports CUDA ", driver_version() / 1000, ".",
                       driver_version() % 1000 / 10, ", this build needs ",
                       runtime_version() / 1000, ".", runtime_version() % 1000 / 10,
                       ": update the driver, or build GEAR with an older CUDA");
    case cudaErrorNoDevice:
      return "no GPU is visible: ask the scheduler for one and check CUDA_VISIBLE_DEVICES, or use "
             "tier='host' and device='cpu'";
    case cudaErrorInvalidDevice:
      return cat("GPUs there are: ", device_names(), "; choose one of them");
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorUnsupportedPtxVersion:
      return "this build has no code for this GPU: add its compute capability to "
             "GEAR_CUDA_ARCHITECTURES and build again (`gear check` shows both)";
    case cudaErrorMemoryAllocation:
      return "the GPU or its driver is out of memory: lower the capacity, batch_size or prefetch";
    case cudaErrorECCUncorrectable:
    case cudaErrorHardwareStackError:
    case cudaErrorDevicesUnavailable:
    case cudaErrorSystemNotReady:
    case cudaErrorUnknown:
      return "the GPU was lost or is not ready: look at nvidia-smi and dmesg, and restart the job "
             "from its last checkpoint, on another node if need be";
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorAssert:
    case cudaErrorMisalignedAddress:
      return "a kernel of this process failed before this call, maybe not GEAR's; its GPU is "
             "unusable until the process ends: CUDA_LAUNCH_BLOCKING=1 shows which";
    default:
      return "see the CUDA documentation of this error; it may come from earlier work of this "
             "process on the GPU";
  }
}

// " on GPU 0", or nothing when even that cannot be asked.
std::string where() {
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) {
    return {};
  }
  return cat(" on GPU ", device);
}

}  // namespace

void fail_cuda(cudaError_t status, const char* call) {
  static_cast<void>(cudaGetLastError());  // or the next launch check would report this one again
  std::string_view name(call);
  name = name.substr(0, name.find('('));
  if (name.starts_with("::")) {
    name.remove_prefix(2);
  }
  throw CudaError(cat("[cuda] ", name, " failed", where(), ": ", cudaGetErrorString(status), " (",
                      cudaGetErrorName(status), "): ", what_to_do(status)));
}

int current_device() {
  int count = 0;
  GEAR_CUDA_TRY(cudaGetDeviceCount(&count));  // says what is missing; cudaGetDevice may not
  // Of a thread without a GPU this copy of the runtime remembers the one that OnDevice visited
  // last.
  void* context = nullptr;
  if (driver().get_context != nullptr && driver().get_context(&context) == 0 &&
      context == nullptr) {
    return 0;
  }
  int device = 0;
  GEAR_CUDA_TRY(cudaGetDevice(&device));
  return device;
}

cudaError_t OnDevice::enter(int device) noexcept {
  if (driver().get_context != nullptr && driver().get_context(&previous_) != 0) {
    previous_ = nullptr;  // the driver is not initialised
  }
  int current = -1;
  if (previous_ != nullptr && cudaGetDevice(&current) == cudaSuccess && current == device) {
    return cudaSuccess;
  }
  const cudaError_t status = cudaSetDevice(device);
  changed_ = status == cudaSuccess;
  return status;
}

OnDevice::OnDevice(int device, std::nothrow_t) noexcept {
  if (enter(device) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
  }
}

OnDevice::OnDevice(int device) {
  const cudaError_t status = enter(device);
  if (status == cudaErrorInvalidDevice) {
    static_cast<void>(cudaGetLastError());
    throw CudaError(cat("[cuda] cudaSetDevice failed: there is no GPU ", device, "; there are: ",
                        device_names(), ": choose one of them, and check CUDA_VISIBLE_DEVICES"));
  }
  check_cuda(status, "cudaSetDevice");
}

OnDevice::~OnDevice() {
  if (changed_ && driver().set_context != nullptr) {
    static_cast<void>(driver().set_context(previous_));
  }
}

Stream::Stream(int device) {
  const OnDevice on(device);
  int lowest = 0;
  int highest = 0;
  GEAR_CUDA_TRY(cudaDeviceGetStreamPriorityRange(&lowest, &highest));
  cudaStream_t stream = nullptr;
  GEAR_CUDA_TRY(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, highest));
  stream_ = {stream, {device}};
}

void Stream::synchronize() const {
  const OnDevice on(device());
  GEAR_CUDA_TRY(cudaStreamSynchronize(*this));
}

void Stream::drain() const noexcept {
  const OnDevice on(device(), std::nothrow);
  static_cast<void>(cudaStreamSynchronize(*this));
}

bool is_capturing(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  const cudaError_t answer = cudaStreamIsCapturing(stream, &status);
  if (answer == cudaErrorStreamCaptureImplicit) {  // of the default stream
    static_cast<void>(cudaGetLastError());
    return true;
  }
  check_cuda(answer, "cudaStreamIsCapturing");
  return status != cudaStreamCaptureStatusNone;
}

Event::Event(bool timing) {
  int device = -1;
  GEAR_CUDA_TRY(cudaGetDevice(&device));
  cudaEvent_t event = nullptr;
  GEAR_CUDA_TRY(
      cudaEventCreateWithFlags(&event, timing ? cudaEventDefault : cudaEventDisableTiming));
  event_ = {event, {device}};
}

void Event::record(cudaStream_t stream) { GEAR_CUDA_TRY(cudaEventRecord(event_.get(), stream)); }

void Event::make_wait(cudaStream_t stream) const {
  GEAR_CUDA_TRY(cudaStreamWaitEvent(stream, event_.get(), 0));
}

bool Event::done() const {
  const OnDevice on(device());
  const cudaError_t status = cudaEventQuery(event_.get());
  if (status == cudaErrorNotReady) {
    return false;
  }
  check_cuda(status, "cudaEventQuery");
  return true;
}

bool Event::done_or_lost() const noexcept {
  const OnDevice on(device(), std::nothrow);
  const cudaError_t status = cudaEventQuery(event_.get());
  if (status == cudaSuccess || status == cudaErrorNotReady) {
    return status == cudaSuccess;
  }
  static_cast<void>(cudaGetLastError());  // or the next launch check would report it
  return is_lost(status);
}

void Event::synchronize() const {
  const OnDevice on(device());
  GEAR_CUDA_TRY(cudaEventSynchronize(event_.get()));
}

void Event::drain() const noexcept {
  const OnDevice on(device(), std::nothrow);
  static_cast<void>(cudaEventSynchronize(event_.get()));
}

float Event::ms_since(const Event& earlier) const {
  const OnDevice on(device());
  float milliseconds = 0;
  GEAR_CUDA_TRY(cudaEventElapsedTime(&milliseconds, earlier.event_.get(), event_.get()));
  return milliseconds;
}

void allocate(uint64_t bytes, int device, DeviceMemory& memory) {
  memory = {nullptr, {device}};
  if (bytes == 0) {
    return;
  }
  void* data = nullptr;
  const OnDevice on(device);
  const cudaError_t status = cudaMalloc(&data, bytes);
  if (status == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());
    size_t free = 0;
    size_t total = 0;
    GEAR_CUDA_TRY(cudaMemGetInfo(&free, &total));
    throw OutOfMemory(
        cat("[cuda] GPU ", device, " has no room for ", bytes, " bytes: ", free, " of its ", total,
            " bytes are free; lower batch_size, prefetch or the capacity, keep the buffer "
            "in tier='pinned', or end what else uses this GPU (nvidia-smi)"));
  }
  check_cuda(status, "cudaMalloc");
  memory.reset(data);
}

void allocate(uint64_t bytes, int device, PinnedMemory& memory) {
  memory = {nullptr, {device}};
  if (bytes == 0) {
    return;
  }
  void* data = nullptr;
  const OnDevice on(device);
  const cudaError_t status =
      cudaHostAlloc(&data, bytes, cudaHostAllocPortable | cudaHostAllocMapped);
  if (status == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());
    throw OutOfMemory(cat("[cuda] the host refused ", bytes,
                          " bytes of page-locked memory: lower "
                          "batch_size or prefetch, ask the scheduler for more memory, or raise the "
                          "limit on locked memory (ulimit -l)"));
  }
  check_cuda(status, "cudaHostAlloc");
  memory.reset(data);
}

}  // namespace gear::base
